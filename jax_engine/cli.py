"""The command `jax-engine`. Each of its commands is a module of `jax_engine.commands`.

Such a module has `USAGE` and `HELP`, a line each; `add_arguments(parser)`; and `run(args)`, which
returns the exit status.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import jax_engine
from jax_engine.errors import JaxEngineError
from jax_engine.typed_fields import suggestion

COMMANDS = ("serve", "bench")


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        """Ends the process."""
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit status."""
    parser = make_parser()
    args, unknown = parser.parse_known_args(arguments)
    if unknown:
        flags = [one for action in args.parser._actions for one in action.option_strings]
        near = suggestion(unknown[0].partition("=")[0], flags)
        hint = near if "did you mean" in near else ""
        args.parser.error(f"{unknown[0]} is not known{hint}")
    try:
        status: int = args.run(args)
    except JaxEngineError as error:
        print(f"{args.parser.prog}: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return status


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = _Parser(
        prog="jax-engine",
        description="LLM inference with a paged KV cache and continuous batching on JAX.",
        epilog="`jax-engine COMMAND --help` explains a command.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=str(jax_engine.__version__))
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    for name in COMMANDS:
        module = import_module(f"jax_engine.commands.{name.replace('-', '_')}")
        one = commands.add_parser(
            name,
            usage=f"%(prog)s {module.USAGE}",
            help=module.HELP,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            conflict_handler="resolve",  # a command may have a flag that the engine has too
        )
        module.add_arguments(one)
        one.set_defaults(run=module.run, parser=one)
    return parser
