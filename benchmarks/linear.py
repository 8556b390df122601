"""All products of a step on a CPU, by its rows: the kernel over stacks against XLA's products.

XLA's have the best form that they were found to have: an array for each layer, layers unrolled, and
2 to 32 rows as a batch of 8 products. The head sees at most 32 rows. Both forms take turns.
Then weights in codes of 4 and 8 bits beside those in bfloat16 and float32, as ratios of their time.
At the end one product with longer rows, where XLA copies the layer out of the stack.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.machine_limits import read_bandwidth
from benchmarks.registry import Benchmark, Figures, Flag, flag
from benchmarks.report import of_processor
from cpu_kernels.linear.coded_kinds import PanelKind, panel_kinds
from cpu_kernels.linear.coded_panels import matrix_bytes, pack, places_of
from cpu_kernels.linear.coded_weights import CodedWeights
from cpu_kernels.linear.float_weights import FloatWeights
from cpu_kernels.linear.linear import linear
from cpu_kernels.linear.panels import pack_panels
from jax_engine.weights.codes import E4M3, INT8, Kind, row_dtype

LAYERS = 30  # of SmolLM2-135M, as are the shapes [out, in]
SHAPES = {"qkv": (960, 576), "o": (576, 576), "gate_up": (3072, 576), "down": (576, 1536)}
HEAD, HEAD_ROWS = (49152, 576), 32
WIDE, WIDE_LAYERS = (2048, 8192), 3
PARTS, FEW_ROWS = 8, range(2, 33)
SECONDS = 2.5  # for each number of rows, two forms together
FEW_BITS = tuple(float(code - 8) for code in range(16))
CODES = {
    "4 bits": Kind(FEW_BITS, 32, scale_dtype="float16"),
    "4 bits, minimums": Kind(FEW_BITS, 32, minimums=True, scale_dtype="float16"),
    "4 bits, groups of 128": Kind(FEW_BITS, 128, scale_dtype="float16"),
    "Q4_K": Kind(FEW_BITS, 32, minimums=True, scale_dtype="float16", outer=256),
    "int8": Kind(INT8, 32, scale_dtype="float16"),
    "Q6_K": Kind(INT8, 16, scale_dtype="float16", outer=256),
    "float8": Kind(E4M3, 128),
}


def layer_of(times: Callable[..., jax.Array], x: jax.Array) -> jax.Array:
    """One layer's products; each takes what the one before it made, cut to the width it wants."""
    for name, (_, size) in SHAPES.items():
        x = times(name, x[:, :size])
    return x * 1e-3


def with_kernel(weights: dict[str, jax.Array], head: jax.Array, x: jax.Array) -> jax.Array:
    def step(x: jax.Array, layer: jax.Array) -> tuple[jax.Array, None]:
        def times(name: str, x: jax.Array) -> jax.Array:
            width = SHAPES[name][0]
            weight = FloatWeights(weights[name])
            return linear(x, weight, width=width, layer=layer).astype(x.dtype)

        return layer_of(times, x), None

    x, _ = lax.scan(step, x, jnp.arange(LAYERS, dtype=jnp.int32))
    return linear(x[:HEAD_ROWS], FloatWeights(head), width=HEAD[0])


def in_panels(weight: jax.Array) -> jax.Array:
    return jnp.asarray(pack_panels(np.asarray(weight)))


def xla_product(weight: jax.Array, x: jax.Array, dtype: Any) -> jax.Array:
    if len(x) not in FEW_ROWS:
        return lax.dot_general(x, weight, (((1,), (1,)), ((), ())), preferred_element_type=dtype)
    parts = weight.reshape(PARTS, -1, weight.shape[1])
    same = jnp.broadcast_to(x, (PARTS, *x.shape))
    batch = (((2,), (2,)), ((0,), (0,)))
    out = lax.dot_general(parts, same, batch, preferred_element_type=dtype)
    return out.reshape(-1, len(x)).T


def with_xla(weights: dict[str, list[jax.Array]], head: jax.Array, x: jax.Array) -> jax.Array:
    for layer in range(LAYERS):
        x = layer_of(lambda name, x, i=layer: xla_product(weights[name][i], x, x.dtype), x)
    return xla_product(head, x[:HEAD_ROWS], jnp.float32)


def take_turns(forms: dict[str, Callable[[], Any]], seconds: float) -> dict[str, list[float]]:
    """Milliseconds of each form's turns."""
    for form in forms.values():
        jax.block_until_ready(form())
    spent: dict[str, list[float]] = {name: [] for name in forms}
    until = time.perf_counter() + seconds * max(len(forms) / 2, 1)
    while time.perf_counter() < until or min(map(len, spent.values())) < 5:
        for name, form in forms.items():
            started = time.perf_counter()
            jax.block_until_ready(form())
            spent[name].append(1000 * (time.perf_counter() - started))
    return spent


def measure(forms: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Milliseconds of each form, the median of turns; and how often the second is the first."""
    spent = take_turns(forms, seconds)
    found = {f"{name}_ms": round(median(times), 1) for name, times in spent.items()}
    found |= {f"{name}_best_ms": round(min(times), 1) for name, times in spent.items()}
    return found | {"xla_over_kernel": round(found["xla_ms"] / found["kernel_ms"], 2)}


def compare(dtype: Any, all_numbers: list[int], seconds: float) -> Iterator[Figures]:
    """The kernel and XLA, with weights of a dtype; each part is a number of rows."""
    keys = iter(jax.random.split(jax.random.key(0), len(SHAPES) + 2))

    def numbers(*shape: int) -> jax.Array:
        return (jax.random.uniform(next(keys), shape) - 0.5).astype(dtype)

    stacks = {name: numbers(LAYERS, *shape) for name, shape in SHAPES.items()}
    apart = {name: [jnp.copy(w) for w in stack] for name, stack in stacks.items()}
    head, all_rows = numbers(*HEAD), numbers(all_numbers[-1], SHAPES["qkv"][1])
    num_bytes = head.nbytes + sum(stack.nbytes for stack in stacks.values())
    kernel, xla = jax.jit(with_kernel), jax.jit(with_xla)
    panels, head_panels = {name: in_panels(w) for name, w in stacks.items()}, in_panels(head)
    del stacks
    yield {
        "weights_mib": round(num_bytes / 2**20),
        "reading_weights_ms": round(1000 * num_bytes / read_bandwidth(), 1),
    }
    for rows in all_numbers:
        x = all_rows[:rows]
        forms = {
            "kernel": partial(kernel, panels, head_panels, x),
            "xla": partial(xla, apart, head, x),
        }
        yield {f"{rows}_rows": measure(forms, seconds)}


def in_codes(kind: Kind, layers: int, shape: tuple[int, int]) -> tuple[jax.Array, jax.Array]:
    """A stack of random matrices in codes, all layers the same numbers: panels and places."""
    rows = np.zeros(shape[0], row_dtype((kind,), shape[1]))
    rng = np.random.default_rng(0)
    rows["codes"] = rng.integers(0, 16 if kind.bits == 4 else 120, shape)
    rows["scales"], rows["outer_scales"] = 1, 2.0**-8
    held = panel_kinds((kind,), shape[1])
    places = places_of(held, rows["kind"], shape[1])
    panels = np.zeros((layers, matrix_bytes(held, places, shape[1])), np.uint8)
    for one in panels:
        pack(rows, (kind,), one, places)
    return jnp.asarray(panels), jnp.asarray(np.stack([places] * layers))


def with_codes(
    kinds: dict[int, tuple[PanelKind, ...]],
    weights: dict[str, tuple[jax.Array, jax.Array]],
    head: tuple[jax.Array, jax.Array],
    x: jax.Array,
) -> jax.Array:
    """`kinds` has those of matrices with rows of some size."""

    def step(x: jax.Array, layer: jax.Array) -> tuple[jax.Array, None]:
        def times(name: str, x: jax.Array) -> jax.Array:
            width, size = SHAPES[name]
            weight = CodedWeights(*weights[name], kinds[size], x.dtype)
            return linear(x, weight, width=width, layer=layer).astype(x.dtype)

        return layer_of(times, x), None

    x, _ = lax.scan(step, x, jnp.arange(LAYERS, dtype=jnp.int32))
    return linear(x[:HEAD_ROWS], CodedWeights(*head, kinds[HEAD[1]], x.dtype), width=HEAD[0])


def compare_codes(dtype: Any, args: argparse.Namespace) -> Iterator[Figures]:
    """Weights in codes, with x in `dtype`, as ratios of the time with weights in `dtype`."""
    panels = {
        name: jnp.asarray(np.stack([pack_panels(np.ones(shape, dtype))] * LAYERS))
        for name, shape in SHAPES.items()
    }
    calls = {"dense": partial(jax.jit(with_kernel), panels, in_panels(jnp.ones(HEAD, dtype)))}
    for name in args.codes:
        kind = CODES[name]
        kinds = {size: panel_kinds((kind,), size) for _, size in SHAPES.values()}
        weights = {of: in_codes(kind, LAYERS, shape) for of, shape in SHAPES.items()}
        (head, places) = in_codes(kind, 1, HEAD)
        run = jax.jit(partial(with_codes, kinds))
        calls[name] = partial(run, weights, (head[0], places[0]))
    for rows in args.codes_rows:
        x = jnp.full((rows, SHAPES["qkv"][1]), 1e-3, dtype)
        calls_now = {name: partial(call, x) for name, call in calls.items()}
        spent = take_turns(calls_now, args.seconds)
        yield {
            f"{rows}_rows": {
                name: {
                    "ms": round(median(times), 2),
                    "best_ms": round(min(times), 2),
                    "ratio": round(median(times) / median(spent["dense"]), 2),
                }
                for name, times in spent.items()
            }
        }


def compare_wide(all_numbers: list[int], seconds: float) -> Iterator[Figures]:
    """The product of Llama 3.2 1B's `down`, in float32."""
    stack = jax.random.uniform(jax.random.key(1), (WIDE_LAYERS, *WIDE)) - 0.5

    def layers(times: Callable[..., jax.Array], x: jax.Array, stack: jax.Array) -> jax.Array:
        indices = jnp.arange(WIDE_LAYERS, dtype=jnp.int32)
        return lax.map(lambda layer: times(x, stack, layer), indices)

    def sliced(x: jax.Array, stack: jax.Array, layer: jax.Array) -> jax.Array:
        return xla_product(lax.dynamic_index_in_dim(stack, layer, keepdims=False), x, x.dtype)

    def indexed(x: jax.Array, stack: jax.Array, layer: jax.Array) -> jax.Array:
        return linear(x, FloatWeights(stack), width=WIDE[0], layer=layer)

    panels = in_panels(stack)
    for rows in all_numbers:
        x = jax.random.uniform(jax.random.key(2), (rows, WIDE[1]))
        kernel, xla = (jax.jit(partial(layers, times)) for times in (indexed, sliced))
        forms = {"kernel": partial(kernel, x, panels), "xla": partial(xla, x, stack)}
        yield {f"{rows}_rows": measure(forms, seconds)}


def run(args: argparse.Namespace) -> Iterator[Figures]:
    for name in args.dtypes:
        for part in compare(jnp.dtype(name), args.rows, args.seconds):
            yield {name: part}
    for name in args.dtypes:
        for part in compare_codes(jnp.dtype(name), args):
            yield {"codes": {name: part}}
    for part in compare_wide(args.wide_rows, args.seconds):
        yield {"2048_by_8192": part}


def numbers(name: str, *default: int) -> Flag:
    return flag(name, type=int, nargs="+", default=list(default))


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--dtypes", nargs="+", default=["float32", "bfloat16"]),
        flag("--codes", nargs="+", choices=CODES, default=list(CODES)),
        numbers("--rows", 1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
        numbers("--codes-rows", 1, 4, 8, 32, 128),
        numbers("--wide-rows", 32, 128, 256, 512),
        flag("--seconds", type=float, default=SECONDS, help="for two forms"),
    ),
    smoke={
        "dtypes": ["float32"],
        "codes": ["4 bits"],
        "rows": [1],
        "codes_rows": [1],
        "wide_rows": [1],
        "seconds": 0.0,
    },
    files=lambda args, found: {of_processor("linear"): found},
)
