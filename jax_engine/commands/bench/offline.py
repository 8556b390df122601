"""What the benchmarks of an engine in this process share."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jax_engine.config.engine_args import EngineArgs
from jax_engine.errors import ConfigError
from jax_engine.progress_log import show_progress_lines

if TYPE_CHECKING:
    from jax_engine.llm import LLM


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Adds the engine's flags."""
    EngineArgs.add_cli_args(parser)


def engine(args: argparse.Namespace) -> "LLM":
    """The engine that the flags ask for."""
    from jax_engine.llm import LLM  # imports JAX, which no other command needs

    show_progress_lines()
    return LLM.from_engine_args(EngineArgs.from_cli_args(args))


def check_output(args: argparse.Namespace) -> None:
    """
    Raises:
        ConfigError: the folder of --output-json is not there.
    """
    if args.output_json and not Path(args.output_json).absolute().parent.is_dir():
        raise ConfigError(f"--output-json: there is no folder for {args.output_json!r}")


def saved(args: argparse.Namespace, figures: dict[str, Any]) -> None:
    """Writes the figures if that is asked for."""
    if args.output_json:
        Path(args.output_json).write_text(json.dumps(figures, indent=4) + "\n", "utf-8")
