"""Paged attention by each backend of this device, beside what the device could do.

All 30 layers of SmolLM2-135M's attention, one after another in a scan, without the rest of the
model. A decode reads every key and value once: its bound is the time in which the same process
reads as many bytes of a large array. A prompt is matrix products: its bound is the time of as many
operations in one large product. Backends and bound take turns, so that a busy machine slows all.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.gpu.ours import available_backends
from benchmarks.registry import Benchmark, Figures, flag, lines
from pallas_kernels import make_metadata, paged_attention, write_kv

HEADS, KV_HEADS, DIM, BLOCK, LAYERS = 9, 3, 64, 16, 30
DTYPES = ("float32", "bfloat16")
# New and earlier tokens of each sequence.
Sequences = tuple[tuple[int, int], ...]
SHAPES: dict[str, Sequences] = {
    "decode 1 x 256": ((1, 255),),
    "decode 8 x 1024": ((1, 1023),) * 8,
    "decode 32 x 256": ((1, 255),) * 32,
    "decode 32 x 17..978": tuple((1, 16 + 31 * i) for i in range(32)),
    "decode 1 x 8192 + 15 x 64": ((1, 8191), *((1, 63),) * 15),
    "prompt of 512": ((512, 0),),
    "prompt of 2048": ((2048, 0),),
    "chunk of 256 after 1792": ((256, 1792),),
    "16 decodes x 256 + chunk of 128": (((1, 255),) * 16 + ((128, 128),)),
}


def kv_bytes(sequences: Sequences, dtype: str) -> int:
    """Keys and values of all layers."""
    tokens = sum(new + old for new, old in sequences)
    return tokens * LAYERS * 2 * KV_HEADS * DIM * jnp.dtype(dtype).itemsize


def operations(sequences: Sequences) -> int:
    """Multiplications and additions of causal attention in all layers."""
    pairs = sum(new * old + new * (new + 1) // 2 for new, old in sequences)
    return LAYERS * 4 * HEADS * DIM * pairs


def attention(sequences: Sequences, dtype: str, backend: str) -> Callable[[], jax.Array]:
    """One step's attention in all layers, over a cache with shuffled blocks."""
    new, old = np.array(sequences, np.int32).T
    tokens, needed = int(new.sum()), -(-(new + old) // BLOCK)
    blocks = int(needed.sum()) + 1
    order = np.random.default_rng(0).permutation(blocks).astype(np.int32)
    tables = np.zeros((len(new), int(needed.max())), np.int32)
    for table, count, end in zip(tables, needed, needed.cumsum(), strict=True):
        table[:count] = order[end - count : end]
    starts = np.concatenate([[0], new.cumsum()]).astype(np.int32)
    cache_shape = (LAYERS, 2, blocks, KV_HEADS, BLOCK, DIM)
    cache = jax.random.normal(jax.random.key(0), cache_shape, jnp.dtype(dtype))
    q = jax.random.normal(jax.random.key(1), (tokens, HEADS, DIM), jnp.dtype(dtype))
    batch = tuple(map(jnp.asarray, (tables, new + old, starts)))
    decode_only = bool((new == 1).all())

    @jax.jit
    def run(q: jax.Array, cache: jax.Array, *batch: jax.Array) -> jax.Array:
        metadata = make_metadata(*batch, tokens, decode_only=decode_only, backend=backend)

        def layer(x: jax.Array, i: jax.Array) -> tuple[jax.Array, None]:
            options: dict[str, Any] = {"layer": i, "scale": 0.125, "backend": backend}
            return paged_attention(x, cache, *batch, metadata=metadata, **options), None

        return lax.scan(layer, q, jnp.arange(LAYERS))[0]

    return lambda: run(q, cache, *batch)


def writing(tokens: int) -> Callable[[], Any]:
    """Writing the keys and values of a step in all layers, the cache donated."""
    state = [jnp.zeros((LAYERS, 2, 512, KV_HEADS, BLOCK, DIM))]
    new = jnp.ones((tokens, KV_HEADS, DIM))
    slots = jnp.asarray(np.random.default_rng(0).permutation(512 * BLOCK)[:tokens].astype(np.int32))

    def run(cache: jax.Array, new: jax.Array, slots: jax.Array) -> jax.Array:
        def layer(cache: jax.Array, i: jax.Array) -> tuple[jax.Array, None]:
            return write_kv(cache, new, new, slots, layer=i), None

        return lax.scan(layer, cache, jnp.arange(LAYERS))[0]

    compiled = jax.jit(run, donate_argnums=0)

    def call() -> jax.Array:
        state[0] = compiled(state[0], new, slots)
        return state[0]

    return call


def reading() -> tuple[Callable[[], Any], int]:
    """Reading a large array once, and its bytes."""
    array = jnp.ones((128, 2**19))
    total = jax.jit(lambda x: x.sum(0))
    return lambda: total(array), array.nbytes


def matrix_product(size: int = 1024) -> tuple[Callable[[], Any], int]:
    """One square float32 matrix product, and its operations."""
    array = jnp.ones((size, size))
    product = jax.jit(jnp.matmul)
    return lambda: product(array, array), 2 * size**3


def measure(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Milliseconds of each call, medians of the rounds."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            jax.block_until_ready(call())
            if number:  # the first round compiles
                times[name].append(time.perf_counter() - start)
    return {name: 1e3 * float(np.median(seconds)) for name, seconds in times.items()}


def row(name: str, dtype: str, rounds: int) -> dict[str, Any]:
    """Milliseconds of one shape by backend, and of its bound."""
    sequences = SHAPES[name]
    decode = all(new == 1 for new, _ in sequences)
    bound, bound_work = reading() if decode else matrix_product()
    work = kv_bytes(sequences, dtype) if decode else operations(sequences)
    calls = {each: attention(sequences, dtype, each) for each in available_backends(False)}
    found = measure(calls | {"bound": bound}, rounds)
    found["bound"] *= work / bound_work
    return {"shape": name, "dtype": dtype} | {f"{k}_ms": round(v, 2) for k, v in found.items()}


def run(args: argparse.Namespace) -> Iterator[Figures]:
    rows: list[dict[str, Any]] = []
    for name in args.shapes:
        for dtype in DTYPES:
            rows.append(row(name, dtype, args.rounds))
            yield {"attention": list(rows)}
    writes = measure({str(tokens): writing(tokens) for tokens in (1, 32, 2048)}, args.rounds)
    yield {"write_kv_us_per_layer": {n: round(1e3 * ms / LAYERS, 1) for n, ms in writes.items()}}


def show(part: Figures) -> str:
    """The row that is new."""
    return lines(part["attention"][-1] if "attention" in part else part)


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--rounds", type=int, default=11),
        flag("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES)),
    ),
    smoke={"rounds": 1, "shapes": ["decode 1 x 256"]},
    show=show,
)
