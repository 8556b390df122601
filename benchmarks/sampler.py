"""The sampler row by row, and vectorised: milliseconds for a batch of R rows.

    python -m benchmarks.sampler            prints the table
    python -m benchmarks.sampler --save     and keeps it in benchmarks/results/

Four forms take turns on the same logits: the oracle for each row, the tutorial's NumPy over all
rows, the engine's compiled sampler as XLA makes it, and its kernel for CPUs. Each has the same
uniform numbers; the two NumPy forms must draw the same tokens.
"""

import argparse
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.linear import take_turns
from benchmarks.report import write_result
from jax_engine import SamplingParams
from jax_engine.operations import numba, xla
from jax_engine.sampling.sampling_inputs import sampling_row, unpack_sampling
from reference.random_numbers import uniform
from reference.sampling import distribution, draw
from scripts.tutorial.vectorised_sampler import Settings, sample_all

VOCAB, ROWS = 49_152, (1, 8, 64)  # SmolLM2's
CASES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "temperature": {"temperature": 1.0},
    "filters": {"temperature": 0.7, "top_k": 50, "top_p": 0.9},
}


def row_by_row(logits: np.ndarray, params: SamplingParams, u: np.ndarray) -> list[int]:
    """The oracle, as often as there are rows."""
    return [draw(distribution(row, params), one) for row, one in zip(logits, u, strict=True)]


def settings_of(params: SamplingParams, rows: int) -> Settings:
    numbers = (params.temperature, params.top_k, params.top_p, params.min_p)
    return Settings(*(np.full(rows, number) for number in numbers))


def on_device(kind: Any, logits: np.ndarray, params: SamplingParams) -> Callable[[], jax.Array]:
    """The engine's draw with the same settings in each row, compiled."""
    rows = len(logits)
    none = jnp.full((3, 0), rows, jnp.int32)
    packed = np.stack([sampling_row(params, params.seed or 0)] * rows)
    inputs = unpack_sampling(jnp.asarray(packed), jnp.arange(rows), none, none)
    return partial(jax.jit(kind.draw), jnp.asarray(logits, jnp.float32), inputs)


def measure(rows: int, given: dict[str, Any]) -> dict[str, float]:
    params = SamplingParams(seed=1, **given)
    logits = np.random.default_rng(0).normal(0.0, 3.0, (rows, VOCAB))
    u = np.array([uniform(1, position) for position in range(rows)])
    forms: dict[str, Callable[[], Any]] = {
        "row_by_row": partial(row_by_row, logits, params, u),
        "all_rows": partial(sample_all, logits, settings_of(params, rows), u),
        "xla": on_device(xla, logits, params),
        "kernel": on_device(numba, logits, params),
    }
    assert forms["row_by_row"]() == forms["all_rows"]().tolist()
    return {f"{name}_ms": round(median(t), 3) for name, t in take_turns(forms).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    print(f"{'':14}{'rows':>5}{'row by row':>12}{'all rows':>10}{'XLA':>9}{'kernel':>9}   (ms)")
    result: dict[str, Any] = {"vocab": VOCAB}
    for name, given in CASES.items():
        for rows in ROWS:
            found = result[f"{name}_{rows}"] = measure(rows, given)
            one, every, compiled, kernel = found.values()
            print(f"{name:14}{rows:5}{one:12.2f}{every:10.2f}{compiled:9.3f}{kernel:9.3f}")
    if args.save:
        many = result[f"filters_{ROWS[-1]}"]
        what = f"temperature, top-k and top-p of {ROWS[-1]} rows: row by row, and the kernel"
        figures = f"{many['row_by_row_ms']:.0f} ms, {many['kernel_ms']:.1f} ms"
        write_result("sampler", result, arguments=args, headline={what: figures})


if __name__ == "__main__":
    main()
