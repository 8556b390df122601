"""The command `jax-engine`. Each of its commands is a module of `jax_engine.commands`.

Such a module has `USAGE` and `HELP`, a line each; `add_arguments(parser)`; and `run(args)`, which
returns the exit status. Its docstring is what `--help` shows. An error takes one line, and the help
can be searched. A file (`--config FILE`) holds flags in YAML; those on the command line win.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import jax_engine
from jax_engine.checks import shown
from jax_engine.config.vllm_spelling import meant, spelled_out
from jax_engine.errors import ConfigError, JaxEngineError


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line. `--help=KEYWORD` shows the flags that KEYWORD is about."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, add_help=False, allow_abbrev=False)
        self.add_argument(
            "-h",
            "--help",
            action=_Help,
            nargs="?",
            metavar="KEYWORD",
            help="show this help; with a keyword, the flags that it is about",
        )

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """As in argparse, but flags may be written as vLLM's users write them."""
        words = sys.argv[1:] if args is None else args
        return super().parse_known_args(spelled_out(self, words), namespace)

    def error(self, message: str) -> NoReturn:
        """Ends the process."""
        self.exit(2, f"{self.prog}: error: {' '.join(message.split())} (see {self.prog} --help)\n")

    def refuse(self, flag: str) -> NoReturn:
        """Ends the process: a flag is not known."""
        shown = [one for one in self._actions if one.help != argparse.SUPPRESS]
        flags = [name for action in shown for name in action.option_strings]
        self.error(f"{flag} is not known{meant(flag.partition('=')[0], flags)}")

    def help_about(self, keyword: str) -> str:
        """The help of the flags whose group, name or explanation has a word like the keyword."""
        wanted = keyword.lower().lstrip("-").replace("_", "-")
        formatter = self._get_formatter()
        found = False
        for group in self._action_groups:
            in_title = wanted in (group.title or "").lower()
            actions = [
                one
                for one in group._group_actions
                if one.help != argparse.SUPPRESS and (in_title or _is_about(one, wanted))
            ]
            if actions:
                found = True
                formatter.start_section(group.title)
                formatter.add_arguments(actions)
                formatter.end_section()
        if not found:
            titles = ", ".join(str(group.title) for group in self._action_groups)
            self.error(f"no flag is about {keyword!r}; there are groups of flags: {titles}")
        return formatter.format_help()


class _Help(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Prints the help and ends the process."""
        if values is not None and isinstance(parser, Parser):
            print(parser.help_about(values), end="")
        else:
            parser.print_help()
        parser.exit()


def _is_about(action: argparse.Action, wanted: str) -> bool:
    names = [one.lstrip("-") for one in action.option_strings] or [str(action.metavar)]
    return any(wanted in one.lower() for one in names) or wanted in (action.help or "").lower()


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
    words = spelled_out(parser, arguments)
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
            raise ConfigError(f"{args.config}: {key} is not a flag{meant(name, list(flags))}")
        if value is not None and not given & set(flags[name].option_strings):
            added += _words(f"{args.config}: {key}", f"--{name}", flags[name], value)
    return [*words[:end], *added, *words[end:]]


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


COMMANDS = (
    "serve",
    "chat",
    "complete",
    "generate",
    "doctor",
    "pull",
    "quantize",
    "bench",
    "completion",
)
ALIASES = {"generate": ["run-batch"]}
EXAMPLES = """\
try a model:
  jax-engine chat                               talk to SmolLM2-135M-Instruct
  jax-engine complete "The capital of France"   continue a text
  jax-engine chat --url http://127.0.0.1:8000   talk to a server, this one's or another's

answer many prompts:
  jax-engine generate -i prompts.jsonl -o answers.jsonl

serve a model:
  jax-engine serve ./my-model --port 8000       for clients of OpenAI's API

measure:
  jax-engine bench serve --num-prompts 100      a load for a server, with vllm bench's flags

set up:
  jax-engine doctor                             what is here, what would run, what to do
  jax-engine pull Qwen/Qwen3-0.6B               download a model
  jax-engine quantize ./my-model ./my-4bit --format w4a16
  source <(jax-engine completion bash)          let TAB complete commands and flags

`jax-engine COMMAND --help` explains a command, `--help=KEYWORD` some of its flags.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    args = _parsed(words)
    try:
        if getattr(args, "config", None) is not None:
            args = _parsed(with_config(args.parser, args, words))
        status: int = args.run(args)
        sys.stdout.flush()
    except JaxEngineError as error:
        print(f"{args.parser.prog}: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # who reads the output, such as `head`, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return 130
    return status


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    args: argparse.Namespace
    args, unknown = make_parser().parse_known_args(words)
    if unknown:
        args.parser.refuse(unknown[0])
    return args


def make_parser() -> Parser:
    """The parser of all commands."""
    parser = Parser(
        prog="jax-engine",
        description="LLM inference with a paged KV cache and continuous batching on JAX.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=str(jax_engine.__version__))
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    for name in COMMANDS:
        module = import_module(f"jax_engine.commands.{name.replace('-', '_')}")
        one = commands.add_parser(
            name,
            aliases=ALIASES.get(name, []),
            usage=f"%(prog)s {module.USAGE}",
            help=module.HELP,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            conflict_handler="resolve",  # a command may have a flag that the engine has too
        )
        module.add_arguments(one)
        one.set_defaults(run=module.run, parser=one)
    return parser


if __name__ == "__main__":
    sys.exit(main())
