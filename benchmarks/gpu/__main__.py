"""`python -m benchmarks.gpu`: the kernels on this GPU, in order of importance, in limited time.

First what the card can do, then whether the kernels are right, then how fast they are, beside the
XLA twin and the attention of others. With `--smoke` tiny shapes, interpreted where there is no
GPU: nothing it prints then is a measurement.
"""

import argparse
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

from benchmarks.gpu.card import copy_bytes_per_s, device_name, matrix_flops_per_s
from benchmarks.gpu.checks import SMOKE_S, kernel_tests
from benchmarks.gpu.others import time_contiguous, time_jax_paged
from benchmarks.gpu.ours import available_backends, exact_result, largest_error, time_shape
from benchmarks.gpu.products import PRODUCTS, Product, time_product
from benchmarks.gpu.products import SMOKE as SMOKE_PRODUCTS
from benchmarks.gpu.products import largest_error as largest_error_of_product
from benchmarks.gpu.record import Record
from benchmarks.gpu.rows import EMPTY, add_row, tables
from benchmarks.gpu.shapes import AIMS, HEADLINES, SHAPES, SMOKE, Shape
from benchmarks.gpu.torch_side import torch_rows
from benchmarks.report import RESULTS


def main() -> None:
    """Run everything, until the budget is spent."""
    options = _options()
    smoke = options.smoke
    if not smoke and jax.devices()[0].platform != "gpu":
        sys.exit("no GPU here; --smoke runs tiny shapes on the CPU")
    name = "smoke" if smoke else device_name()
    command = " ".join(sys.orig_argv[1:])
    record = Record(options.output, name, command, EMPTY, tables, add=options.add)
    card = {
        "copy_bytes_per_s": copy_bytes_per_s(smoke),
        "matrix_flops_per_s": matrix_flops_per_s(smoke),
    }
    record.put("card", card)
    for part in (_errors, _headlines, _products, _tests, _others, _rest):
        part(record, smoke, options.budget)
    record.save()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="tiny shapes, on any device")
    parser.add_argument("--add", action="store_true", help="measure only what the files lack")
    parser.add_argument("--budget", type=float, default=500, metavar="SECONDS")
    parser.add_argument("--output", type=Path, default=RESULTS / "gpu", metavar="FOLDER")
    return parser.parse_args()


def _there(record: Record, shape: Shape | Product, method: str) -> bool:
    """Whether an earlier run measured it (`--add`)."""
    rows = record.content["rows"]
    return any(row["shape"] == shape.name and row["method"] == method for row in rows)


def _attempt(record: Record, what: str, run: Callable[[], None]) -> None:
    """One measurement. Where it fails, the results name the reason; stderr has its traceback."""
    try:
        run()
    except Exception as error:
        traceback.print_exc()
        record.skip(what, f"{type(error).__name__}: {str(error).splitlines()[0][:200]}")
    # Else the programs and arrays of all shapes would stay on the device.
    jax.clear_caches()


def _within[S: (Shape, Product)](
    record: Record, shapes: tuple[S, ...], until: float, smoke: bool
) -> Iterator[S]:
    """Shapes until so many seconds are gone; what is left is named. A smoke run takes its time."""
    for shape in shapes:
        if record.elapsed() > until and not smoke:
            record.skip(shape.name, "the time was spent")
        else:
            yield shape


def _errors(record: Record, smoke: bool, budget: float) -> None:
    """The results of every backend on real shapes, against the XLA twin in float32."""
    for shape in SMOKE if smoke else AIMS:
        for backend in available_backends(smoke):
            what = f"{backend}, {shape.name}"

            def run(shape: Shape = shape, backend: str = backend, what: str = what) -> None:
                error = largest_error(shape, backend, exact_result(shape, smoke), smoke)
                record.put("errors", {**record.content["errors"], what: f"{error:.2e}"})

            if what not in record.content["errors"]:
                _attempt(record, f"error of {what}", run)


def _headlines(record: Record, smoke: bool, budget: float) -> None:
    """The aims, paged against in order, and the mixture."""
    shapes = SMOKE if smoke else HEADLINES
    _time_ours(record, shapes, smoke, 0.4 * budget, available_backends(smoke))


def _rest(record: Record, smoke: bool, budget: float) -> None:
    """All other shapes; the twin is not timed again."""
    if not smoke:
        backends = [name for name in available_backends(smoke) if name != "xla"]
        _time_ours(record, SHAPES[len(HEADLINES) :], smoke, budget, backends)


def _time_ours(
    record: Record, shapes: tuple[Shape, ...], smoke: bool, until: float, backends: list[str]
) -> None:
    card = record.content["card"]
    for shape in _within(record, shapes, until, smoke):
        predicted = shape.predicted_s(card["copy_bytes_per_s"], card["matrix_flops_per_s"])
        for backend in backends:

            def run(
                shape: Shape = shape, backend: str = backend, predicted: float = predicted
            ) -> None:
                timing = time_shape(shape, backend, predicted, smoke)
                add_row(record, shape, backend, predicted, timing)

            if not _there(record, shape, backend):
                _attempt(record, f"{backend}, {shape.name}", run)


def _products(record: Record, smoke: bool, budget: float) -> None:
    """Quantised weights: errors against the twin in float32, and times."""
    card = record.content["card"]
    backends = [name for name in available_backends(smoke) if name in ("mosaic", "xla")]
    for product in _within(record, SMOKE_PRODUCTS if smoke else PRODUCTS, 0.5 * budget, smoke):
        predicted = product.predicted_s(card["copy_bytes_per_s"], card["matrix_flops_per_s"])
        for backend in backends:
            what = f"{backend}, {product.name}"

            def run(product: Product = product, backend: str = backend,
                    what: str = what, predicted: float = predicted) -> None:  # fmt: skip
                error = largest_error_of_product(product, backend)
                record.put("errors", {**record.content["errors"], what: f"{error:.2e}"})
                us = time_product(product, backend, predicted, smoke)
                add_row(record, product, backend, predicted, {"us": us})

            if not _there(record, product, backend):
                _attempt(record, what, run)


def _tests(record: Record, smoke: bool, budget: float) -> None:
    """The kernels' property tests on this device."""
    if record.content["tests"]:
        return
    log = record.json_file.with_name(f"{record.json_file.stem}-tests.txt")
    limit = SMOKE_S if smoke else 0.3 * budget
    record.put("tests", kernel_tests(smoke, limit, log))


def _others(record: Record, smoke: bool, budget: float) -> None:
    """What others offer, on the aims."""
    card = record.content["card"]
    aims = SMOKE if smoke else AIMS
    methods = {
        "jax paged_attention (deprecated)": time_jax_paged,
        "cuDNN, contiguous": time_contiguous,
    }
    for shape in _within(record, aims, 0.8 * budget, smoke):
        predicted = shape.predicted_s(card["copy_bytes_per_s"], card["matrix_flops_per_s"])
        for method, measure in methods.items():

            def run(shape: Shape = shape, predicted: float = predicted, method: str = method,
                    measure: Any = measure) -> None:  # fmt: skip
                add_row(record, shape, method, predicted, {"us": measure(shape, predicted, smoke)})

            if not _there(record, shape, method):
                _attempt(record, f"{method}, {shape.name}", run)
    if any(row["method"].startswith("torch") for row in record.content["rows"]):
        return
    for shape, method, us in torch_rows(record, aims, smoke, limit_s=0.15 * budget):
        predicted = shape.predicted_s(card["copy_bytes_per_s"], card["matrix_flops_per_s"])
        add_row(record, shape, method, predicted, {"us": us})


if __name__ == "__main__":
    main()
