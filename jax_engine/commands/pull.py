"""Downloads a model, and writes the path of its files.

    jax-engine pull                                SmolLM2-135M-Instruct, the default model
    jax-engine pull Qwen/Qwen3-0.6B                a model of the hub
    jax-engine pull owner/name --revision v1.0 --download-dir ./models --hf-token

What is here already is not fetched again; an interrupted download goes on. All commands find what
was pulled by the same name.
"""

import argparse

from jax_engine.config.engine_args import EngineArgs
from jax_engine.progress_log import show_progress_lines

USAGE = "[MODEL] [flags]"
HELP = "download a model"
_TAKEN = ("revision", "download_dir", "hf_token")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags: those of the engine's that concern downloads."""
    parser.add_argument(
        "model_tag",
        nargs="?",
        metavar="MODEL",
        help="a hub name, or what is here: a directory or a GGUF file (SmolLM2-135M-Instruct)",
    )
    EngineArgs.add_cli_args(parser, _TAKEN)


def run(args: argparse.Namespace) -> int:
    """Downloads the model; returns the exit status."""
    from jax_engine.models.checkpoints.resolve import HubOptions, resolve_model

    show_progress_lines()
    hub = HubOptions(args.revision, args.download_dir, args.hf_token)
    print(resolve_model(args.model_tag, hub=hub))
    return 0
