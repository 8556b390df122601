"""Fills `pallas_kernels/tuning_table.json` for the GPU of this machine.

`python -m benchmarks.tune_kernels [--limit SECONDS] [--output FOLDER] [--smoke]`

Each candidate is compiled and timed on the step that the kernel is for: a decode of 64 sequences
with 4096 tokens each, a prefill of 8192. One that does not compile, or whose result differs from
the XLA twin's, is out. The table is written after each shape, and once more into the folder, so a
cut-off keeps what was found; no candidate is begun when the time is spent.
A smoke run tries one candidate on a tiny shape, interpreted on a CPU, and writes no table.
"""

import argparse
import itertools
import json
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jax

from benchmarks.gpu.ours import available_backends, exact_result, largest_error, time_shape
from benchmarks.gpu.shapes import SMOKE, Shape
from benchmarks.report import RESULTS
from pallas_kernels import tuning
from pallas_kernels.backends import FOR_DECODE
from pallas_kernels.device import wave_size

DECODE = Shape("decode", ((1, 4095),) * 64)
PREFILL = Shape("prefill", ((8192, 0),))
# The most common first: all heads with the default block size, then other sizes.
DIMS, BLOCK_SIZES = (128, 64, 256, 96, 80, 112, 192), (16, 32, 64, 128, 8)
TOLERANCE = 2e-2  # of the largest magnitude: rounding to bfloat16, not errors
SPACE: dict[str, dict[str, tuple[Any, ...]]] = {
    "triton_decode": {
        "block_kv": (32, 64, 128),
        "num_warps": (4, 8),
        "num_stages": (2, 3, 4),
        "splits": (None,),
    },
    "triton_prefill": {
        "block_q": (64, 128),
        "block_kv": (32, 64, 128),
        "num_warps": (4, 8),
        "num_stages": (2, 3, 4),
    },
    "mosaic_decode": {"block_kv": (64, 128, 256), "stages": (2, 3, 4, 6), "splits": (None,)},
    # The default without ping-pong comes first.
    "mosaic_prefill": {
        "block_q": (128, 64),
        "block_kv": (128, 64),
        "stages": (2, 3, 4),
        "ping_pong": (False, True),
    },
}


def main() -> None:
    """Tune each kernel for each shape, the most common first, until the budget is spent."""
    options = _options()
    started, smoke, left = time.perf_counter(), options.smoke, 0
    if not smoke and jax.devices()[0].platform != "gpu":
        sys.exit("no GPU here; --smoke tries one candidate on the CPU")
    for shape, kernel in _work(smoke):
        if time.perf_counter() - started > options.limit and not smoke:
            left += 1
            continue
        key = (jax.devices()[0].device_kind, kernel, shape.dim, shape.block_size, shape.cache_dtype)
        best = _best(key, shape, smoke, started + options.limit)
        if best is not None and not smoke:
            add_entry(tuning.TABLE_FILE, key, best)
            options.output.mkdir(parents=True, exist_ok=True)
            shutil.copy(tuning.TABLE_FILE, options.output)
    if left:
        print(f"the time was spent: {left} kernels and shapes were not tuned")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.tune_kernels", description=__doc__)
    parser.add_argument("--limit", type=float, default=500, metavar="SECONDS")
    parser.add_argument("--card", default="", help="not read; every step of a GPU's run gets it")
    parser.add_argument("--smoke", action="store_true", help="one candidate, on any device")
    parser.add_argument("--output", type=Path, default=RESULTS / "gpu", metavar="FOLDER")
    return parser.parse_args()


def _work(smoke: bool) -> Iterator[tuple[Shape, str]]:
    backends = available_backends(smoke)
    if smoke:
        yield SMOKE[0], "triton_decode"
        return
    # The kernels that the device prefers come first, with all their shapes.
    for_decode = [name for name in FOR_DECODE if name in backends]
    for preferred, size, dim in itertools.product(
        zip(backends, for_decode, strict=True), BLOCK_SIZES, DIMS
    ):
        for base, backend in zip((PREFILL, DECODE), preferred, strict=True):
            if (kernel := f"{backend}_{base.part}") in tuning.KERNELS:
                yield replace(base, dim=dim, block_size=size), kernel


def candidates(kernel: str) -> Iterator[tuning.Config]:
    """Every combination of the space of a kernel, without those that the kernel does not have."""
    names, values = zip(*SPACE[kernel].items(), strict=True)
    for chosen in itertools.product(*values):
        with suppress(ValueError):  # ping-pong with one warpgroup
            yield tuning.KERNELS[kernel](**dict(zip(names, chosen, strict=True)))


def _best(
    key: tuple[str, str, int, int, str], shape: Shape, smoke: bool, until: float
) -> tuning.Config | None:
    """The fastest configuration that is right, or None where none was better than the default.

    Of those that were tried: after the moment `until` no further one is.
    """
    kernel = key[1]
    backend = kernel.partition("_")[0]
    default = tuning.default(kernel, shape.dim, shape.cache_dtype, wave_size())
    tried = [default] if smoke else [default, *(c for c in candidates(kernel) if c != default)]
    exact = exact_result(shape, smoke)
    times: dict[tuning.Config, float] = {}
    for config in tried:
        if times and time.perf_counter() > until and not smoke:
            print(f"the time was spent within {kernel}, {shape.name}")
            break
        jax.clear_caches()
        with tuning.instead_of_the_file({key: config}):
            try:
                error = largest_error(shape, backend, exact, smoke)
                if error > TOLERANCE:
                    raise ValueError(f"wrong by {error:.1e}")
                times[config] = time_shape(shape, backend, 1e-3, smoke)
            except Exception as problem:
                print(f"{config}: {type(problem).__name__}: {str(problem)[:120]}", flush=True)
                continue
        print(f"{shape.name}: {config}: {times[config]:.1f} us", flush=True)
    fastest = min(times, key=times.__getitem__, default=None)
    return None if fastest == default else fastest


def add_entry(file: Path, key: tuple[str, str, int, int, str], config: tuning.Config) -> None:
    """Write one more entry into a table, which is then still one that `tuning.load` accepts."""
    device, kernel, dim, block_size, dtype = key
    table = json.loads(file.read_text()) if file.exists() else {}
    shapes = table.setdefault(device, {}).setdefault(kernel, {})
    shapes[f"{dim} {block_size} {dtype}"] = asdict(config)
    file.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", "utf-8")
    tuning.load(file)


if __name__ == "__main__":
    main()
