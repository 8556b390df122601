"""Quantises a model's weights into a new directory.

    jax-engine quantize ./my-model ./my-model-w4a16 --format w4a16
    jax-engine quantize ./my-model ./my-model-gptq --format gptq --algorithm gptq --act-order
    jax-engine quantize ./my-model ./my-model-awq --format awq --algorithm awq
    jax-engine quantize ./my-model ./my-model-w8a8 --format w8a8 --smoothing-strength 0.5
    jax-engine quantize ./my-model ./my-model-fp8 --format fp8 --ignore 'layers[.]0[.]'

Matrices of layers are quantised; embeddings and the head are not. An interrupted run goes on.
"""

import argparse
import dataclasses

from jax_engine.quantize.options import ALGORITHMS, FORMATS, Options

USAGE = "MODEL OUT --format FORMAT [flags]"
HELP = "quantise a model's weights"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    parser.add_argument("model", metavar="MODEL", help="a directory with float weights, a hub name")
    parser.add_argument("out", metavar="OUT", help="a new directory, or one to go on with")
    parser.add_argument("--format", required=True, choices=FORMATS, help="codes and layout")
    parser.add_argument(
        "--algorithm", choices=ALGORITHMS, default="rtn", help="how codes are found (rtn)"
    )
    parser.add_argument(
        "--group-size", type=int, help="inputs that share a scale; -1: all (128, 64 or 32)"
    )
    parser.add_argument("--asymmetric", action="store_true", help="groups have zero points")
    parser.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="REGEX",
        help="modules that stay as they are; may be given again",
    )
    _add_calibration(parser)


def _add_calibration(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("calibration", "for what needs a text")
    group.add_argument(
        "--act-order", action="store_true", help="gptq: inputs that matter come first"
    )
    group.add_argument("--damping", type=float, default=0.01, help="gptq: of the Hessian (0.01)")
    group.add_argument(
        "--smoothing-strength", type=float, metavar="A", help="w8a8: SmoothQuant's exponent (none)"
    )
    group.add_argument("--calibration", metavar="FILE", help="text (topics of Python's help)")
    group.add_argument("--samples", type=int, default=64, help="pieces of the text (64)")
    group.add_argument("--sample-length", type=int, default=512, help="their tokens (512)")
    group.add_argument("--seed", type=int, default=0, help="chooses the pieces (0)")


def run(args: argparse.Namespace) -> int:
    """Quantises; returns the exit status."""
    given = {field.name: getattr(args, field.name) for field in dataclasses.fields(Options)}
    options = Options(**given | {"ignore": tuple(args.ignore)})
    from jax_engine.progress_log import show_progress_lines
    from jax_engine.quantize.run import quantize

    show_progress_lines()
    print(quantize(args.model, args.out, options))
    return 0
