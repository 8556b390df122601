"""Speed of `pallas_kernels.paged_attention` against what the machine could do.

`python -m benchmarks.paged_attention [--json PATH]`

Decode attention reads every key and value once: it is compared with the bandwidth at which the same
process reads a large array. Prefill attention is matrix products: it is compared with the
rate of one large matrix product. Each is measured in the same run, in turn with the others, so
that a busy machine slows all of them; medians and bests of the rounds are given.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.report import write_result
from pallas_kernels import make_metadata, paged_attention, write_kv

# SmolLM2-135M's heads, in a few layers: enough that they do not fit the processor's caches.
HEADS, KV_HEADS, DIM, BLOCK, LAYERS = 9, 3, 64, 16, 8


@dataclass(frozen=True)
class Shape:
    """One batch: the number of new and of earlier tokens of each sequence."""

    name: str
    sequences: tuple[tuple[int, int], ...]
    dtype: str = "float32"

    @property
    def decode(self) -> bool:
        return all(new == 1 for new, _ in self.sequences)

    def kv_bytes(self) -> int:
        """Keys and values a decode has to read, in all layers."""
        slots = LAYERS * 2 * KV_HEADS * DIM * jnp.dtype(self.dtype).itemsize
        return sum(new + old for new, old in self.sequences) * slots

    def flops(self) -> int:
        """Multiplications and additions of causal attention, in all layers."""
        pairs = sum(new * old + new * (new + 1) // 2 for new, old in self.sequences)
        return LAYERS * 4 * HEADS * DIM * pairs


RAGGED = tuple((1, 16 + 31 * i) for i in range(32))
SHAPES = (
    Shape("decode 1 x 128", ((1, 127),)),
    Shape("decode 1 x 1024", ((1, 1023),)),
    Shape("decode 8 x 1024", ((1, 1023),) * 8),
    Shape("decode 32 x 512", ((1, 511),) * 32),
    Shape("decode 32 x 512", ((1, 511),) * 32, "bfloat16"),
    Shape("decode 32 x 17..978", RAGGED),
    Shape("decode 1 x 8192 + 15 x 64", ((1, 8191), *((1, 63),) * 15)),
    Shape("prefill 1024", ((1024, 0),)),
    Shape("prefill 1024", ((1024, 0),), "bfloat16"),
    Shape("prefill 4096", ((4096, 0),)),
    Shape("chunk 256 after 1792", ((256, 1792),)),
)


def attention(shape: Shape) -> Callable[[], Any]:
    """Attention of all layers, one after another, over a cache with shuffled blocks."""
    new, old = np.array(shape.sequences, np.int32).T
    tokens = int(new.sum())
    needed = -(-(new + old) // BLOCK)
    blocks = int(needed.sum()) + 1
    order = np.random.default_rng(0).permutation(blocks).astype(np.int32)
    tables = np.zeros((len(new), int(needed.max())), np.int32)
    for table, count, end in zip(tables, needed, needed.cumsum(), strict=True):
        table[:count] = order[end - count : end]
    starts = jnp.asarray(np.concatenate([[0], new.cumsum()]).astype(np.int32))
    cache_shape = (LAYERS, 2, blocks, KV_HEADS, BLOCK, DIM)
    cache = jax.random.normal(jax.random.key(0), cache_shape, shape.dtype)
    q = jax.random.normal(jax.random.key(1), (tokens, HEADS, DIM), shape.dtype)
    batch = (jnp.asarray(tables), jnp.asarray(new + old), starts)

    @jax.jit
    def run(
        q: jax.Array, cache: jax.Array, tables: jax.Array, lens: jax.Array, starts: jax.Array
    ) -> jax.Array:
        metadata = make_metadata(tables, lens, starts, tokens, decode_only=shape.decode)

        def layer(x: jax.Array, i: jax.Array) -> tuple[jax.Array, None]:
            out = paged_attention(
                x, cache, tables, lens, starts, layer=i, scale=0.125, metadata=metadata
            )
            return out, None

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


def measure(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, np.ndarray]:
    """Seconds of each call, in turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            jax.block_until_ready(call())  # type: ignore[no-untyped-call]
            if number:  # the first round compiles
                times[name].append(time.perf_counter() - start)
    return {name: np.array(seconds) for name, seconds in times.items()}


def rates(work: float, seconds: np.ndarray) -> dict[str, float]:
    """Work a second in units of 10**9: the median and the best of the rounds."""
    median, best = work / np.median(seconds) / 1e9, work / seconds.min() / 1e9
    return {"median": round(float(median), 2), "best": round(float(best), 2)}


def attention_row(
    shape: Shape,
    read: tuple[Callable[[], Any], int],
    product: tuple[Callable[[], Any], int],
    n: int,
) -> dict[str, Any]:
    """One shape, beside its bound measured in the same rounds."""
    bound, bound_work = read if shape.decode else product
    seconds = measure({"attention": attention(shape), "bound": bound}, n)
    work = shape.kv_bytes() if shape.decode else shape.flops()
    mine, limit = rates(work, seconds["attention"]), rates(bound_work, seconds["bound"])
    return {
        "shape": shape.name,
        "dtype": shape.dtype,
        "unit": "GB/s" if shape.decode else "GFLOP/s",
        "attention": mine,
        "bound": limit,
        "share": round(mine["median"] / limit["median"], 3),
        "ms_per_layer": round(1e3 * float(np.median(seconds["attention"])) / LAYERS, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the result here")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    read, product = reading(), matrix_product()
    rows = []
    for shape in SHAPES:
        row = attention_row(shape, read, product, arguments.rounds)
        rows.append(row)
        print(
            f"{row['shape']:26} {row['dtype']:9} {row['attention']['median']:7.2f} of "
            f"{row['bound']['median']:6.1f} {row['unit']:8} (best {row['attention']['best']:.2f}) "
            f"{row['ms_per_layer']:8.3f} ms a layer",
            flush=True,
        )
    writes = measure({str(t): writing(t) for t in (1, 32, 2048)}, arguments.rounds)
    write_us = {t: round(1e6 * float(np.median(s)) / LAYERS, 1) for t, s in writes.items()}
    print("write_kv, microseconds a layer, by tokens:", write_us)
    if arguments.json:
        result = {"attention": rows, "write_kv_us_per_layer": write_us}
        write_result("paged_attention", result, arguments.json, arguments=arguments)


if __name__ == "__main__":
    main()
