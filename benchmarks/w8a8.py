"""All products of a step on a CPU, by its rows: int8 weights and activations against plain ones.

    taskset -c 1 python -m benchmarks w8a8 --cpu-time
                                          of one core, which other programs hardly change

The weights are those of SmolLM2-135M, with random numbers; gate and up are multiplied with their
gate. W8A8 rounds the rows of x too. The forms take turns, and each one's best time counts: other
work on the machine makes times longer, never shorter.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.linear import HEAD, HEAD_ROWS, LAYERS, SHAPES
from benchmarks.registry import Benchmark, Figures, flag
from benchmarks.report import of_processor
from jax_engine.weights.format import Matrix, Weight, WeightFormat
from jax_engine.weights.panels import Panels
from jax_engine.weights.w8a8 import W8A8Panels

FLOAT32, BFLOAT16 = jnp.dtype(jnp.float32), jnp.dtype(jnp.bfloat16)


class Form(NamedTuple):
    """How weights are held, and the dtype of x and of plain weights."""

    weights: WeightFormat
    dtype: jnp.dtype


FORMS = {
    "float32": Form(Panels(), FLOAT32),
    "bfloat16": Form(Panels(), BFLOAT16),
    "w8a8": Form(W8A8Panels(), BFLOAT16),
}


def packed(form: Form, name: str, shape: tuple[int, ...]) -> Weight:
    """A stack of random matrices, or the head."""
    matrix = Matrix(shape, form.dtype, gated=name == "gate_up")
    arrays = {
        part: np.empty(spec.shape, spec.dtype) for part, spec in form.weights.arrays(matrix).items()
    }
    values = np.random.default_rng(0).standard_normal(shape, np.float32) / shape[-1] ** 0.5
    form.weights.pack(values.astype(form.dtype), arrays, matrix)
    held = {part: jnp.asarray(array) for part, array in arrays.items()}
    return Weight(held, matrix=matrix, format=form.weights)


def step_of(form: Form, matrices: dict[str, Matrix]) -> Callable[..., jax.Array]:
    """A compiled step's products."""

    def step(arrays: dict[str, Any], x: jax.Array) -> jax.Array:
        weights = {
            name: Weight(arrays[name], matrix=matrix, format=form.weights)
            for name, matrix in matrices.items()
        }

        def layer_of(x: jax.Array, layer: jax.Array) -> tuple[jax.Array, None]:
            width = SHAPES["qkv"][1]
            y = weights["qkv"].format.matmul(x, weights["qkv"], layer, None, out_dtype=form.dtype)[
                :, :width
            ]
            y = weights["o"].format.matmul(y, weights["o"], layer, None, out_dtype=form.dtype)
            y = weights["gate_up"].format.gated_matmul(
                y, weights["gate_up"], None, "silu", layer, None
            )
            return x + weights["down"].format.matmul(
                y, weights["down"], layer, None, out_dtype=form.dtype
            ), None

        x, _ = lax.scan(layer_of, x, jnp.arange(LAYERS, dtype=jnp.int32))
        return weights["head"].format.matmul(
            x[:HEAD_ROWS], weights["head"], None, None, out_dtype=FLOAT32
        )

    return jax.jit(step)


def best_ms(
    calls: dict[str, Callable[[], Any]], clock: Callable[[], float], seconds: float
) -> dict[str, float]:
    """Milliseconds of each form's fastest call."""
    for call in calls.values():
        jax.block_until_ready(call())
    best = dict.fromkeys(calls, float("inf"))
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or max(best.values()) == float("inf"):
        for name, call in calls.items():
            started = clock()
            jax.block_until_ready(call())
            best[name] = min(best[name], 1000 * (clock() - started))
    return best


def step_calls() -> dict[str, Callable[..., Any]]:
    """Each form's step, with its weights."""
    steps: dict[str, Callable[..., Any]] = {}
    shapes = {name: (LAYERS, *shape) for name, shape in SHAPES.items()} | {"head": HEAD}
    for name, form in FORMS.items():
        weights = {part: packed(form, part, shape) for part, shape in shapes.items()}
        step = step_of(form, {part: weight.matrix for part, weight in weights.items()})
        arrays = {part: dict(weight.arrays) for part, weight in weights.items()}
        steps[name] = partial(step, arrays)
    return steps


def run(args: argparse.Namespace) -> Iterator[Figures]:
    clock = time.process_time if args.cpu_time else time.perf_counter
    steps = step_calls()
    for rows in args.rows:
        x = np.random.default_rng(1).standard_normal((rows, SHAPES["qkv"][1]), np.float32)
        calls = {
            name: partial(steps[name], jnp.asarray(x, form.dtype)) for name, form in FORMS.items()
        }
        found = best_ms(calls, clock, args.seconds)
        yield {f"{rows}_rows": {f"{name}_ms": round(ms, 2) for name, ms in found.items()}}


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--cpu-time", action="store_true", help="instead of the time that passes"),
        flag("--rows", type=int, nargs="+", default=[1, 8, 32, 128, 512]),
        flag("--seconds", type=float, default=6.0, help="for each number of rows"),
    ),
    smoke={"rows": [1], "seconds": 0.0},
    files=lambda args, found: {of_processor("w8a8"): found},
)
