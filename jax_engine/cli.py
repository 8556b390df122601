"""The command `jax-engine`. Each of its commands is a module of `jax_engine.commands`.

Such a module has `USAGE` and `HELP`, a line each; `add_arguments(parser)`; and `run(args)`, which
returns the exit status.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import jax_engine
from jax_engine.cli_config import with_config
from jax_engine.cli_parser import Parser
from jax_engine.errors import JaxEngineError

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
