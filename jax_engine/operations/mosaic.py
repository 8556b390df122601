"""The same operations by kernels for a GPU; the arguments and results are those of `xla.py`."""

from jaxtyping import Array, Float

from jax_engine.operations import xla
from jax_engine.weights.low_rank import A, B, LowRank
from pallas_kernels import low_rank
from pallas_kernels.backends import Backend


def add_low_rank(
    out: Float[Array, "T out"], low: LowRank, backend: Backend = None
) -> Float[Array, "T out"]:
    """See `xla.add_low_rank`, which computes what the kernels lack, and on GPUs that have none.

    They lack slots of which each row has one of many: a tile of rows would read too many.

    Args:
        backend: "mosaic" for the kernels, or an error if they lack the call.
    """
    a, b, halves = low.arrays[A], low.arrays[B], low.layout.halves
    by_tiles = not low.layout.choices and low_rank.has_kernel(out, low.x, a, b, halves)
    if backend is None and not by_tiles:
        return xla.add_low_rank(out, low)
    slot, tiles = low.rows.slot, low.rows.tiles
    found: Array = low_rank.add_low_rank(
        out, low.x, a, b, slot, layer=low.layer, halves=halves, tiles=tiles, backend=backend
    )
    return found
