"""The flags of `chat` and `complete`: who answers, and how to sample.

A model in this process or a server answers. Each is imported when it is chosen, since an engine
takes seconds to import.
"""

import argparse
from typing import Any

from jax_engine.commands.answers import Source
from jax_engine.commands.api_keys import NAMES, client_key
from jax_engine.config.engine_args import EngineArgs
from jax_engine.errors import ConfigError

# The sampling fields of requests: their types, and what the help says.
_SAMPLING: dict[str, tuple[type, str]] = {
    "max_tokens": (int, "most tokens of an answer"),
    "temperature": (float, "0: the likeliest token each time"),
    "top_p": (float, "draw from the likeliest tokens with this share of the probability"),
    "top_k": (int, "draw from so many of the likeliest tokens; 0: from all"),
    "min_p": (float, "draw from tokens at least so likely, as a share of the likeliest one's"),
    "presence_penalty": (float, "above 0: against tokens that were said already"),
    "frequency_penalty": (float, "above 0: the more often, the more"),
    "repetition_penalty": (float, "above 1: against tokens of the prompt, too"),
    "seed": (int, "the same seed, the same answer"),
}


def add_source_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `make_source`."""
    EngineArgs.add_cli_args(parser)
    group = parser.add_argument_group("a server instead of an engine of this command's own")
    group.add_argument("--url", help="such as http://127.0.0.1:8000 or https://host/v1")
    group.add_argument("--model-name", metavar="NAME", help="the server's model (its first)")
    group.add_argument("--api-key", metavar="KEY", help=f"or a variable: {NAMES}")


def add_sampling_flags(parser: argparse.ArgumentParser, max_tokens: int | None = None) -> None:
    """Adds a flag for each field of sampling; without it, the model's own default counts."""
    group = parser.add_argument_group("sampling (the model's defaults)")
    for name, (kind, says) in _SAMPLING.items():
        default = max_tokens if name == "max_tokens" else None
        metavar = "N" if kind is int else "X"
        says += "" if default is None else f" ({default})"
        flag = "--" + name.replace("_", "-")
        group.add_argument(flag, type=kind, default=default, metavar=metavar, help=says)
    group.add_argument("--stop", action="append", metavar="TEXT", help="ends an answer; repeatable")


def sampling_fields(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of a request that were given."""
    found = {name: getattr(args, name, None) for name in (*_SAMPLING, "stop", "n")}
    return {name: value for name, value in found.items() if value is not None}


def check_sampling(args: argparse.Namespace) -> None:
    """Refuses a wrong flag of sampling before a model is loaded.

    Raises:
        InvalidRequestError: as `SamplingParams`.
    """
    from jax_engine.sampling_params import SamplingParams

    SamplingParams(**sampling_fields(args))


def make_source(args: argparse.Namespace, chat_template: str | None = None) -> Source:
    """The server that was named, or an engine.

    Raises:
        JaxEngineError: as `LLM`, the URL is none, or an engine would refuse the sampling flags.
    """
    if args.url is not None:
        from jax_engine.commands.answers import Server

        return Server(args.url, args.model_name or args.model, client_key(args.api_key))
    for name in ("model_name", "api_key"):
        if getattr(args, name) is not None:
            raise ConfigError(f"--{name.replace('_', '-')} needs --url: it is about a server")
    check_sampling(args)
    from jax_engine.commands.local_model import LocalModel

    return LocalModel(args, chat_template)
