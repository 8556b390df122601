"""The CPU's kernel of paged attention against the same in plain jnp, in turns in one process.

`python -m benchmarks.cpu_attention [--json PATH]`

All 30 layers of SmolLM2-135M's attention, one after another in a scan, without the rest of the
model. A decode is also compared with reading: the seconds in which the same process reads as many
bytes of a large array as the step has keys and values.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.paged_attention import measure, reading
from benchmarks.report import write_result
from pallas_kernels import make_metadata, paged_attention

HEADS, KV_HEADS, DIM, BLOCK, LAYERS = 9, 3, 64, 16, 30
BACKENDS = ("numba", "xla")
# New and earlier tokens of each sequence.
SHAPES: dict[str, tuple[tuple[int, int], ...]] = {
    "decode 1 x 256": ((1, 255),),
    "decode 8 x 1024": ((1, 1023),) * 8,
    "decode 32 x 256": ((1, 255),) * 32,
    "prompt of 512": ((512, 0),),
    "16 decodes x 256 + chunk of 128": (((1, 255),) * 16 + ((128, 128),)),
}


def attention(
    sequences: tuple[tuple[int, int], ...], dtype: str, backend: str
) -> Callable[[], jax.Array]:
    """One step's attention in all layers, over a cache with shuffled blocks."""
    new, old = np.array(sequences, np.int32).T
    tokens, needed = int(new.sum()), -(-(new + old) // BLOCK)
    blocks = int(needed.sum()) + 1
    order = np.random.default_rng(0).permutation(blocks).astype(np.int32)
    tables = np.zeros((len(new), int(needed.max())), np.int32)
    for table, count, end in zip(tables, needed, needed.cumsum(), strict=True):
        table[:count] = order[end - count : end]
    starts = np.concatenate([[0], new.cumsum()]).astype(np.int32)
    cache = jax.random.normal(
        jax.random.key(0), (LAYERS, 2, blocks, KV_HEADS, BLOCK, DIM), jnp.dtype(dtype)
    )
    q = jax.random.normal(jax.random.key(1), (tokens, HEADS, DIM), jnp.dtype(dtype))
    batch = tuple(map(jnp.asarray, (tables, new + old, starts)))

    @jax.jit
    def run(q: jax.Array, cache: jax.Array, *batch: jax.Array) -> jax.Array:
        decode_only = bool((new == 1).all())
        metadata = make_metadata(*batch, tokens, decode_only=decode_only, backend=backend)

        def layer(x: jax.Array, i: jax.Array) -> tuple[jax.Array, None]:
            options: dict[str, Any] = {"layer": i, "scale": 0.125, "backend": backend}
            return paged_attention(x, cache, *batch, metadata=metadata, **options), None

        return lax.scan(layer, q, jnp.arange(LAYERS))[0]

    return lambda: run(q, cache, *batch)


def row(name: str, dtype: str, rounds: int) -> dict[str, Any]:
    """Milliseconds of one shape: medians, bests, and the ratio of the medians."""
    sequences = SHAPES[name]
    read, read_bytes = reading()
    calls: dict[str, Callable[[], Any]] = {b: attention(sequences, dtype, b) for b in BACKENDS}
    seconds = measure(calls | {"read": read}, rounds)
    tokens = sum(new + old for new, old in sequences)
    kv_bytes = tokens * LAYERS * 2 * KV_HEADS * DIM * jnp.dtype(dtype).itemsize
    found: dict[str, Any] = {"shape": name, "dtype": dtype}
    for backend in BACKENDS:
        found[f"{backend}_ms"] = round(1e3 * float(np.median(seconds[backend])), 2)
        found[f"{backend}_best_ms"] = round(1e3 * float(seconds[backend].min()), 2)
    found["ratio"] = round(found["xla_ms"] / found["numba_ms"], 2)
    found["read_ms"] = round(1e3 * float(np.median(seconds["read"])) * kv_bytes / read_bytes, 2)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the result here")
    parser.add_argument("--rounds", type=int, default=11)
    arguments = parser.parse_args()
    rows = []
    for name in SHAPES:
        for dtype in ("float32", "bfloat16"):
            rows.append(row(name, dtype, arguments.rounds))
            print(rows[-1], flush=True)
    if arguments.json:
        write_result("cpu_attention", {"rows": rows}, arguments.json, arguments=arguments)


if __name__ == "__main__":
    main()
