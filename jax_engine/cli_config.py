"""`--config FILE`: a command's flags in YAML. Flags on the command line win."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jax_engine.checks import shown
from jax_engine.errors import ConfigError
from jax_engine.typed_fields import suggestion


def add_config_flag(parser: argparse.ArgumentParser) -> None:
    """Adds `--config`, which the command line reads."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="flags in YAML, by their names with - or _; those of the command line win",
    )


def with_config(
    parser: argparse.ArgumentParser, args: argparse.Namespace, arguments: Sequence[str]
) -> list[str]:
    """The arguments, with the flags of their `--config` file.

    Args:
        args: what the parser of the command has read so far.

    Raises:
        ConfigError: the file cannot be read, or one of its keys or values is wrong.
    """
    words = list(arguments)
    end = words.index("--") if "--" in words else len(words)
    given = {word.partition("=")[0] for word in words[:end] if word.startswith("-")}
    if getattr(args, "model_tag", None) is not None:
        given.add("--model")
    flags = {
        name.lstrip("-"): one
        for one in parser._actions
        for name in one.option_strings
        if name.startswith("--") and one.dest not in ("help", "config")
    }
    added: list[str] = []
    for key, value in _settings(args.config).items():
        name = str(key).replace("_", "-")
        if name not in flags:
            raise ConfigError(f"{args.config}: {key} is not a flag{_near(name, flags)}")
        if value is not None and not given & set(flags[name].option_strings):
            added += _words(f"{args.config}: {key}", f"--{name}", flags[name], value)
    return [*words[:end], *added, *words[end:]]


def _near(name: str, known: Sequence[str] | dict[str, Any]) -> str:
    near = suggestion(name, list(known))
    return near if "did you mean" in near else ""


def _settings(path: str) -> dict[Any, Any]:
    import yaml  # takes 10 ms, which no other command pays

    try:
        found = yaml.safe_load(Path(path).expanduser().read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {path}: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"--config {path} is not YAML: {' '.join(str(error).split())}") from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ConfigError(f"--config {path} must hold flags and their values, got {shown(found)}")
    return found


def _words(where: str, flag: str, action: argparse.Action, value: Any) -> list[str]:
    """A setting as words of the command line."""
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise ConfigError(f"{where} must be true or false, got {shown(value)}")
        if value:
            return [flag]
        no = flag.replace("--", "--no-", 1)
        return [no] if no in action.option_strings else []
    many = action.nargs in ("+", "*") or isinstance(action, argparse._AppendAction)
    if not many:
        if isinstance(value, bool) and not (action.nargs == "?" and value):
            raise ConfigError(f"{where} must not be {str(value).lower()}")
        return [flag] if value is True else [f"{flag}={_text(value)}"]
    values = [_text(one) for one in (value if isinstance(value, list) else [value])]
    if isinstance(action, argparse._AppendAction):
        return [f"{flag}={one}" for one in values]
    return [flag, *values]


def _text(value: Any) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value, default=str)
    return str(value)
