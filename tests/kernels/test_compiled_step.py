"""What the compiler makes of a step: the cache stays where it is, the table's width is free."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from pallas_kernels import make_metadata, paged_attention, write_kv

LAYERS, BLOCKS, HEADS, BLOCK, DIM, SEQS = 3, 1201, 2, 16, 8, 4
CACHE = (LAYERS, 2, BLOCKS, HEADS, BLOCK, DIM)


def compile_step(tokens: int, width: int, dtype: Any = jnp.float32) -> Any:
    """Write and attend in all layers, the cache donated and carried, as the engine does."""
    decode_only = tokens == SEQS

    def step(cache: Any, x: Any, tables: Any, lens: Any, starts: Any, slots: Any) -> Any:
        metadata = make_metadata(tables, lens, starts, tokens, decode_only=decode_only)

        def layer(carry: Any, i: Any) -> Any:
            cache, x = carry
            cache = write_kv(cache, x[:, :HEADS], x[:, :HEADS], slots, layer=i)
            out = paged_attention(
                x, cache, tables, lens, starts, layer=i, scale=1.0, metadata=metadata
            )
            return (cache, x + out), None

        return jax.lax.scan(layer, (cache, x), jnp.arange(LAYERS))[0]

    shapes = [(SEQS, width), (SEQS,), (SEQS + 1,), (tokens,)]
    arguments = [
        jax.ShapeDtypeStruct(CACHE, dtype),
        jax.ShapeDtypeStruct((tokens, 2 * HEADS, DIM), dtype),
        *(jax.ShapeDtypeStruct(shape, jnp.int32) for shape in shapes),
    ]
    return jax.jit(step, donate_argnums=0).lower(*arguments).compile()


@pytest.mark.parametrize("tokens", [SEQS, 32])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_the_cache_is_never_copied(tokens: int, dtype: Any) -> None:
    compiled = compile_step(tokens, 8, dtype)
    elements = LAYERS * 2 * BLOCKS * HEADS * BLOCK * DIM
    for line in compiled.as_text().splitlines():
        made = re.match(r"\s*(?:ROOT )?%?\S+ = \w+\[([\d,]+)\]\S* (?:copy|convert)\(", line)
        if made:
            size = 1
            for length in made[1].split(","):
                size *= int(length)
            assert size < elements // LAYERS // 2, line
    memory = compiled.memory_analysis()
    assert memory.alias_size_in_bytes == elements * jnp.dtype(dtype).itemsize
    assert memory.temp_size_in_bytes < elements * jnp.dtype(dtype).itemsize // 2


@pytest.mark.parametrize("tokens", [SEQS, 32])
def test_no_array_grows_with_the_width_of_the_table(tokens: int) -> None:
    narrow, wide = (compile_step(tokens, w).memory_analysis() for w in (8, 4096))
    assert wide.temp_size_in_bytes <= narrow.temp_size_in_bytes + 2**12
