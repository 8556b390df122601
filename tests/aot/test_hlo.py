"""Copies are found in what XLA really makes, and updates in place are not taken for copies."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from pallas_kernels import write_kv
from pallas_kernels.aot.hlo import find_copies, launches_per_turn, watch

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


def test_launches_of_a_turn_of_a_loop() -> None:
    """Each kernel, library call and copy is one; what only names or waits for a buffer is none."""
    text = (
        "%body (p: (s32[], f32[4])) -> (s32[], f32[4]) {\n"
        "  %p = (s32[], f32[4]{0}) parameter(0)\n"
        "  %x = f32[4]{0} get-tuple-element(%p), index=1\n"
        "  %start = ((f32[4]{0}), f32[1]{0}, u32[]) fusion-start(%x), kind=kLoop, calls=%sliced\n"
        "  %done = f32[1]{0} fusion-done(%start)\n"
        '  %product = f32[4]{0} custom-call(%x, %done), custom_call_target="__cublas$gemm"\n'
        "  %sum = f32[4]{0} fusion(%product, %x), kind=kLoop, calls=%added\n"
        "  ROOT %both = (s32[], f32[4]{0}) tuple(%i, %sum)\n}\n"
        "ENTRY %main (q: (s32[], f32[4])) -> (s32[], f32[4]) {\n"
        "  %before = f32[4]{0} fusion(%q), kind=kLoop, calls=%added\n"
        "  ROOT %loop = (s32[], f32[4]{0}) while(%q), condition=%more, body=%body\n}\n"
    )
    assert launches_per_turn(text) == 3
    without = "".join(line for line in text.splitlines(True) if "%sum = " not in line)
    assert launches_per_turn(without) == 2
    outer = (
        "%outer (r: (s32[], f32[4])) -> (s32[], f32[4]) {\n"
        "  %copy = f32[4]{0} copy(%r)\n"
        "  ROOT %inner = (s32[], f32[4]{0}) while(%copy), condition=%more, body=%body TIMES\n}\n"
        "ENTRY %all (s: f32[4]) -> f32[4] {\n"
        "  ROOT %loop = (s32[], f32[4]{0}) while(%s), condition=%more, body=%outer\n}\n"
    )
    times = ', backend_config={"known_trip_count":{"n":"7"},"init":{"n":"0"}}'
    assert launches_per_turn(text + outer.replace("TIMES", times)) == 1 + 7 * 3
    assert launches_per_turn(text + outer.replace("TIMES", "")) == 1 + 3, "at least one turn"


def test_launches_of_what_xla_makes_of_loops() -> None:
    """A step that depends on all of the one before cannot be one kernel; no loop launches none."""

    def twice(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 9, lambda _, y: jnp.sin(y / y.sum()) @ y, x)

    assert launches_per_turn(hlo(twice, (32, 32))) >= 3
    assert launches_per_turn(hlo(lambda x: x @ x, (32, 32))) == 0
