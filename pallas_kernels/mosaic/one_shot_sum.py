"""A sum over devices in one kernel and one exchange: each device writes its part to all others.

A thread block takes some tiles. It writes its device's part of them into the memory of every
device, tells the blocks of its own number there that it has, waits until it was told by all, and
adds up what lies in its own memory. So a message crosses the links once, where a ring passes it on
from device to device. A device receives the parts of all others, in place of two rings' shares: the
kernel is for short messages, as those of steps that decode.

JAX starts the kernel behind a barrier over the devices, so that all semaphores are zero and what
is written to is free. A block waits for the same block elsewhere, so all blocks must run at once:
there are at most as many as an SM each.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from pallas_kernels.device import target_device
from pallas_kernels.mosaic import plgpu
from pallas_kernels.mosaic.attention import USUAL_SMS
from pallas_kernels.tree_sum import in_tree

TILE = 1024  # numbers of a tile: 8 of a thread
VECTOR_BYTES = 16  # what a thread reads or writes at once


def missing(size: int, dtype: jnp.dtype) -> str | None:
    """Why x of so many numbers is not supported, or None if it is."""
    if dtype.name not in ("float32", "bfloat16"):
        return f"sums of {dtype.name} (it has float32 and bfloat16)"
    if size == 0 or size % TILE:
        return f"x of {size} numbers (a multiple of {TILE} is needed)"
    return None


def add(x: Float[Array, "..."], axis_name: str) -> Float[Array, "..."]:
    """`sum_over_devices` on checked arguments."""
    size, flat = lax.axis_size(axis_name), x.reshape(-1)
    total, _ = plgpu.kernel(
        functools.partial(_body, axis_name, size),
        interpret=False,
        out_type=(
            jax.ShapeDtypeStruct(flat.shape, x.dtype),
            jax.ShapeDtypeStruct((size, *flat.shape), x.dtype),
        ),
        scratch_types={"sent": plgpu.semaphore()},
        grid=(_blocks(x.size),),
        grid_names=("block",),
    )(flat)
    result: Array = total.reshape(x.shape)
    return result


def added_up(received: Float[Array, "devices N"], *, interpret: bool) -> Float[Array, " N"]:
    """The kernel's second half by itself, which JAX can interpret: the sum of what has come."""
    count = received.shape[1]
    total: Array = plgpu.kernel(
        _add_body,
        interpret=interpret,
        out_type=jax.ShapeDtypeStruct((count,), received.dtype),
        grid=(_blocks(count),),
        grid_names=("block",),
    )(received)
    return total


def _body(
    axis_name: str,
    size: int,
    x: Any,  # [N]
    total: Any,  # [N]
    received: Any,  # [devices, N]
    *,
    sent: Any,
) -> None:
    rank = lax.axis_index(axis_name)

    def send(own: Any) -> None:
        part = _loaded(x.at[own])
        for device in range(size):
            plgpu.on_device(received, device)[rank, own] = part

    _each_tile(x.shape[0], send)
    plgpu.tell_all(sent, size)
    plgpu.wait_for(sent, size)
    _add_body(received, total)


def _add_body(received: Any, total: Any) -> None:
    size, count = received.shape

    def add_tile(own: Any) -> None:
        total[own] = in_tree([_loaded(received.at[device, own]) for device in range(size)])

    _each_tile(count, add_tile)


def _blocks(count: int) -> int:
    """Thread blocks for so many numbers: at most one on each SM."""
    sms = getattr(target_device(), "core_count", None) or USUAL_SMS
    return min(count // TILE, int(sms))


def _each_tile(count: int, run: Any) -> None:
    """Runs a function on the places of each tile of this block's."""
    block, blocks = lax.axis_index("block"), _blocks(count)

    def turn(i: Any, _: None) -> None:
        run(pl.ds(pl.multiple_of((block + i * blocks) * TILE, TILE), TILE))

    lax.fori_loop(0, plgpu.div(count // TILE - block + blocks - 1, blocks), turn, None)


def _loaded(ref: Any) -> jax.Array:
    return plgpu.load_vectors(ref, VECTOR_BYTES // jnp.dtype(ref.dtype).itemsize)
