"""The sampler row by row, and vectorised: milliseconds for a batch of R rows.

Four forms take turns on the same logits: the oracle for each row, the tutorial's NumPy over all
rows, the engine's compiled sampler as XLA makes it, and its kernel for CPUs. Each has the same
uniform numbers; the two NumPy forms must draw the same tokens.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.linear import SECONDS, take_turns
from benchmarks.registry import Benchmark, Figures, flag
from jax_engine import SamplingParams
from jax_engine.operations import numba, xla
from jax_engine.sampling.sampling_inputs import sampling_row, unpack_sampling
from reference.random_numbers import uniform
from reference.sampling import distribution, draw
from scripts.tutorial.vectorised_sampler import Settings, sample_all

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


def measure(rows: int, vocab: int, given: dict[str, Any], seconds: float) -> dict[str, float]:
    params = SamplingParams(seed=1, **given)
    logits = np.random.default_rng(0).normal(0.0, 3.0, (rows, vocab))
    u = np.array([uniform(1, position) for position in range(rows)])
    forms: dict[str, Callable[[], Any]] = {
        "row_by_row": partial(row_by_row, logits, params, u),
        "all_rows": partial(sample_all, logits, settings_of(params, rows), u),
        "xla": on_device(xla, logits, params),
        "kernel": on_device(numba, logits, params),
    }
    assert forms["row_by_row"]() == forms["all_rows"]().tolist()
    return {f"{name}_ms": round(median(t), 3) for name, t in take_turns(forms, seconds).items()}


def run(args: argparse.Namespace) -> Iterator[Figures]:
    yield {"vocab": args.vocab}
    for name, given in CASES.items():
        for rows in args.rows:
            yield {f"{name}_{rows}": measure(rows, args.vocab, given, args.seconds)}


def headline(args: argparse.Namespace, found: Figures) -> dict[str, str]:
    many = found[f"filters_{args.rows[-1]}"]
    what = f"temperature, top-k and top-p of {args.rows[-1]} rows: row by row, and the kernel"
    return {what: f"{many['row_by_row_ms']:.0f} ms, {many['kernel_ms']:.1f} ms"}


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--vocab", type=int, default=49_152, help="SmolLM2's"),
        flag("--rows", type=int, nargs="+", default=[1, 8, 64]),
        flag("--seconds", type=float, default=SECONDS, help="for two forms"),
    ),
    smoke={"vocab": 256, "rows": [2], "seconds": 0.0},
    headline=headline,
)
