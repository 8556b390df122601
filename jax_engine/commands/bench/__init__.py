"""Measures throughput and latency, of an engine in this process or of a server.

    jax-engine bench throughput --input-len 64 --output-len 64 --num-prompts 32
    jax-engine bench latency --input-len 64 --output-len 128 --batch-size 1
    jax-engine bench serve --port 8000 --dataset-name sharegpt --dataset-path FILE --request-rate 2

Flags and fields of results are those of `vllm bench`. `serve` asks any server with OpenAI's API.
`jax-engine bench serve --help` explains its flags.
"""

import argparse
from importlib import import_module

USAGE = "throughput|latency|serve [flags]"
HELP = "measure throughput and latency"
KINDS = ("throughput", "latency", "serve")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the three benchmarks as commands of their own."""
    kinds = parser.add_subparsers(
        prog="jax-engine bench", metavar="BENCHMARK", required=True, parser_class=type(parser)
    )
    for name in KINDS:
        module = import_module(f"jax_engine.commands.bench.{name}")
        one = kinds.add_parser(
            name,
            help=module.HELP,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            conflict_handler="resolve",  # --seed is the engine's, too
        )
        module.add_arguments(one)
        one.set_defaults(measure=module.run, parser=one)


def run(args: argparse.Namespace) -> int:
    """Runs one of them; returns the exit status."""
    status: int = args.measure(args)
    return status
