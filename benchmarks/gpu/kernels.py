"""`python -m benchmarks.gpu.kernels PART ...`: the kernels' results and times, part by part.

Errors come before times. With `--smoke` tiny shapes, interpreted where there is no GPU: nothing
that it prints then is a measurement. With `--once` each kernel of the parts runs once and is not
timed, which is what a sanitizer watches.
"""

import argparse
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import jax

from benchmarks.gpu import experts, flash3, ours, products, shapes
from benchmarks.gpu.card import rates
from benchmarks.gpu.said import Measured, attempt, put, row


def main() -> None:
    """The parts named on the command line, in their order."""
    parser = argparse.ArgumentParser("python -m benchmarks.gpu.kernels", description=__doc__)
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--smoke", action="store_true", help="tiny shapes, on any device")
    parser.add_argument("--once", action="store_true", help="run each kernel once, time none")
    parser.add_argument("--limit", type=float, default=1e9, metavar="SECONDS")
    parser.add_argument("--card", default="", help="rates of this card, as JSON")
    args = parser.parse_args()
    card = {} if args.once else rates(args.card, args.smoke)
    for part in args.parts:
        PARTS[part](card, args)


def _once(args: argparse.Namespace, what: str, error: Callable[[], float]) -> None:
    """The error of one kernel on one shape, said."""

    def run() -> None:
        put("errors", what, value=f"{error():.2e}")

    attempt(f"error of {what}", run, args.limit)
    jax.clear_caches()  # else the programs and arrays of all shapes would stay on the device


def _time(
    card: dict[str, float],
    args: argparse.Namespace,
    shape: Any,
    method: str,
    measure: Callable[[float], dict[str, float]],
) -> None:
    """One row."""
    if args.once:
        return
    limit = shape.predicted_s(card["copy_bytes_per_s"], card["matrix_flops_per_s"])
    measured: Measured = shape
    attempt(
        f"{method}, {shape.name}",
        lambda: row(measured, method, limit, measure(limit)),
        args.limit,
    )
    jax.clear_caches()


def _attention(
    card: dict[str, float], args: argparse.Namespace, chosen: Iterable[shapes.Shape], errors: bool
) -> None:
    smoke = args.smoke
    for shape in shapes.SMOKE if smoke else chosen:
        for backend in ours.available_backends(smoke):
            if (backend == "xla") != (smoke and not errors):
                # On a GPU it takes 20 times as long as the others, and its figures are known. In a
                # smoke run the others take long to compile, and once is enough.
                continue

            if not ours.supports(shape, backend, smoke):
                continue

            def error(shape: shapes.Shape = shape, backend: str = backend) -> float:
                exact = ours.exact_result(shape, smoke)
                return ours.largest_error(shape, backend, exact, smoke)

            def measure(limit: float, shape: Any = shape, backend: str = backend) -> Any:
                return {"us": ours.time_shape(shape, backend, limit, smoke)}

            if errors:
                _once(args, f"{backend}, {shape.name}", error)
            _time(card, args, shape, backend, measure)


def _others(
    card: dict[str, float],
    args: argparse.Namespace,
    module: Any,
    chosen: Iterable[Any],
    time: Callable[..., float],
) -> None:
    """Products with quantised weights, or of experts: Mosaic's kernel beside XLA's twin."""
    for shape in chosen:
        for backend in ("mosaic", "xla"):
            if backend not in ours.available_backends(args.smoke):
                continue
            _once(args, f"{backend}, {shape.name}", partial(module.largest_error, shape, backend))

            def measure(limit: float, shape: Any = shape, backend: str = backend) -> Any:
                return {"us": time(shape, backend, limit, args.smoke)}

            _time(card, args, shape, backend, measure)


def _new(card: dict[str, float], args: argparse.Namespace) -> None:
    _attention(card, args, shapes.NEW, errors=True)


def _products(card: dict[str, float], args: argparse.Namespace) -> None:
    chosen = products.SMOKE if args.smoke else products.PRODUCTS
    _others(card, args, products, chosen, products.time_product)


def _experts(card: dict[str, float], args: argparse.Namespace) -> None:
    chosen = experts.SMOKE if args.smoke else experts.EXPERTS
    _others(card, args, experts, chosen, experts.time_experts)


def _beside(card: dict[str, float], args: argparse.Namespace) -> None:
    """The shapes on which other libraries are timed, too, and FlashAttention 3 in this process."""
    for shape in shapes.SMOKE if args.smoke else shapes.BESIDE:
        _attention(card, args, (shape,), errors=False)
        if flash3.available() and not args.smoke:

            def measure(limit: float, shape: shapes.Shape = shape) -> Any:
                return {"us": flash3.time_shape(shape, limit)}

            _once(args, f"{flash3.METHOD}, {shape.name}", partial(flash3.largest_error, shape))
            _time(card, args, shape, flash3.METHOD, measure)


def _rest(card: dict[str, float], args: argparse.Namespace) -> None:
    _attention(card, args, shapes.REST, errors=True)


PARTS: dict[str, Callable[[dict[str, float], argparse.Namespace], None]] = {
    "new": _new,
    "products": _products,
    "experts": _experts,
    "beside": _beside,
    "rest": _rest,
}


if __name__ == "__main__":
    main()
