"""What adapters add to a product: each row by the low-rank matrices of its own adapter."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from pallas_kernels.backends import Backend, choose, choose_backend
from pallas_kernels.device import interpreting
from pallas_kernels.mosaic.low_rank_plan import Halves, missing, tiles_of
from pallas_kernels.mosaic.low_rank_plan import Tiles as Tiles


def add_low_rank(
    out: Float[Array, "T out"],
    x: Float[Array, "T in"],
    a: Float[Array, "L S blocks pairs 32"],
    b: Float[Array, "L S panels ranks 32"],
    slot: Int[Array, " T"],
    *,
    layer: Int[Array, ""] | int,
    halves: Halves,
    tiles: Tiles | None = None,
    backend: Backend = None,
) -> Float[Array, "T out"]:
    """out[t] + B (A x[t]) of the adapter of row t, rounded once to out's dtype.

    Adapters lie in S slots of L layers. A product may be of several parts, such as q, k and v, each
    with an A of R ranks, a multiple of 16, and rows of B of its own.

    Args:
        out: the product with the model's own weight, bfloat16 or float32.
        x: what was multiplied, bfloat16.
        a: blocks of 16 ranks, part by part: those of a column of A, then of the next one.
        b: R ranks of 32 rows of B, the rows' biases, and 7 rows that are not read.
        slot: each row's slot, from 1 on; a row of slot 0 keeps its bits.
        layer: which one; one beyond the stack is the last, or the first.
        halves: for each 16 rows of B the column of the product that they begin at, how many there
            are (16), and their part.
        tiles: what `make_tiles` made of `slot`, once for all layers; None: it is made here.
        backend: "mosaic" (Hopper), or None.

    Raises:
        ValueError: the arrays do not match, or the backend does not support the call.
    """
    if (
        len({len(out), len(x), len(slot)}) > 1
        or 0 in (*out.shape, *x.shape)
        or a.shape[:2] != b.shape[:2]
        or x.shape[1] != 2 * a.shape[3]
        or len(halves) != 2 * b.shape[2]
    ):
        raise ValueError(
            "expected out [T, out], x [T, in], a [L, S, blocks, in / 2, 32], b [L, S, panels, "
            f"R + 8, 32] and two halves a panel: {out.shape=} {x.shape=} {slot.shape=} {a.shape=} "
            f"{b.shape=} {len(halves)=}"
        )
    choose(backend or "mosaic", lambda name: _missing(name, out, x, a, b, halves))
    from pallas_kernels.mosaic import low_rank as mosaic

    layer = jnp.asarray(layer, jnp.int32)
    tiles = tiles_of(slot, a.shape[1]) if tiles is None else tiles
    return mosaic.add(out, x, a, b, tiles, layer, halves, interpret=interpreting())


def make_tiles(slot: Int[Array, " T"], slots: int) -> Tiles | None:
    """What `add_low_rank` looks up, the same in all layers; None on a device without its kernels.

    Args:
        slot: each row's slot, from 1 to `slots`; 0 for none.
    """
    return tiles_of(slot, slots) if choose_backend(None) == "mosaic" else None


def has_kernel(out: Any, x: Any, a: Any, b: Any, halves: Halves) -> bool:
    """Whether this device has a kernel for a call. Where not, XLA multiplies by every slot."""
    name = choose(
        None, lambda name: None if name == "xla" else _missing(name, out, x, a, b, halves)
    )
    return name == "mosaic"


def _missing(name: str, out: Any, x: Any, a: Any, b: Any, halves: Halves) -> str | None:
    """Why a backend does not support a call, or None if it does."""
    return missing(out, x, a, b, halves) if name == "mosaic" else "this operation"
