"""Copies are found in what XLA really makes, and updates in place are not taken for copies."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from pallas_kernels import write_kv
from pallas_kernels.aot.hlo import find_copies, watch

CACHE = (3, 2, 1201, 2, 16, 8)


def hlo(function: Any, *shapes: tuple[int, ...], donate: bool = False) -> str:
    arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    jitted = jax.jit(function, donate_argnums=0 if donate else ())
    return str(jitted.lower(*arguments).compile().as_text())


def write(cache: jax.Array, new: jax.Array) -> jax.Array:
    return write_kv(cache, new, new, jnp.arange(4), layer=1)


def test_a_cache_that_is_not_donated_is_copied() -> None:
    assert find_copies(hlo(write, CACHE, (4, 2, 8)), watch(CACHE))


def test_a_donated_cache_is_not() -> None:
    assert find_copies(hlo(write, CACHE, (4, 2, 8), donate=True), watch(CACHE)) == []


@pytest.mark.parametrize("shape", [(-1, 128), (3, 2, 1201, -1), (2, 3, -1)])
def test_a_copy_is_known_in_another_shape(shape: tuple[int, ...]) -> None:
    def negate(cache: jax.Array) -> jax.Array:
        return -cache.reshape(shape)

    assert find_copies(hlo(negate, CACHE), watch(CACHE))


def test_the_weights_of_one_layer_copied_out_of_their_stack() -> None:
    def one_layer(stack: jax.Array, layer: jax.Array) -> jax.Array:
        index = layer[0].astype(jnp.int32)
        return jax.lax.dynamic_index_in_dim(stack, index, keepdims=False) * 2

    text = hlo(one_layer, (5, 480, 640), (1,))
    assert find_copies(text, watch(weights=[(5, 480, 640)]))
    assert find_copies(text, watch(weights=[(5, 480, 960)])) == []


def test_started_elsewhere_and_with_its_operands_in_the_result() -> None:
    started = (
        "%body (p: bf16[2]) -> bf16[2] {\n"
        "  %start = ((bf16[30,640,960]{2,1,0}, s32[]), bf16[1,640,{n}]{2,1,0}, u32[]) "
        "fusion-start(%p, %i), kind=kLoop, calls=%sliced\n"
        "  %done = bf16[1,640,{n}]{2,1,0} fusion-done(%start)\n}\n"
    )
    watched = watch(weights=[(30, 640, 960)])
    assert len(find_copies(started.replace("{n}", "960"), watched)) == 1
    assert find_copies(started.replace("{n}", "320"), watched) == []
