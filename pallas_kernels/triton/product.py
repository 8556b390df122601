"""x @ w.T in one order of additions, for any number of rows of x.

A program multiplies a tile of rows of x by a tile of rows of w. Tiles are of one size, and the
steps along the columns and the parts that columns are cut into follow from w alone. So the number
of rows changes how many programs there are, and nothing in them.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from pallas_kernels.device import wave_size
from pallas_kernels.triton.dialect import dot, launch, load, program_id, shape_of, store

# Rows of x and of w in a tile. Hopper's products have at least 64 rows; a decode of one row waits
# for its weights, whatever it multiplies.
TILE_X, TILE_W = 64, 128
COLUMNS = {4: 32, 2: 64}  # of a step, by the bytes of a number
# Programs that a product has at least, if its columns can be cut: half a GPU's SMs can read as fast
# as its memory. More parts would write more sums.
PROGRAMS = 64
NUM_WARPS = 4
NUM_STAGES = {32: 4, 64: 2}  # by the threads of a warp: an MI300X has 64 KiB for tiles


class Cut(NamedTuple):
    """How w [out, in] is cut.

    Attributes:
        columns: columns of a step.
        steps: steps of a part; the last part may have fewer.
        parts: parts of the columns, each with a sum of its own.
    """

    columns: int
    steps: int
    parts: int


def cut_of(out: int, size: int, dtype: Any) -> Cut:
    """How a matrix [out, size] is cut."""
    columns = COLUMNS[jnp.dtype(dtype).itemsize]
    steps = -(-size // columns)
    each = -(-steps // min(-(-PROGRAMS // -(-out // TILE_W)), steps))
    return Cut(columns, each, -(-steps // each))


@partial(jax.jit, static_argnames=("dtype", "interpret"))
def multiply(
    x: Float[Array, "T in"],
    weights: Float[Array, "L out in"],
    layer: Int[Array, ""],
    *,
    dtype: Any,
    interpret: bool,
) -> Float[Array, "T out"]:
    """x @ weights[layer].T, accumulated in float32 and returned in `dtype`."""
    layers, out, size = weights.shape
    cut = cut_of(out, size, weights.dtype)
    whole = cut.parts == 1
    found: Array = launch(
        partial(_program, cut=cut, out=out),
        (x, weights.reshape(layers * out, size), jnp.reshape(layer, 1)),
        shape_of((cut.parts, len(x), out), dtype if whole else jnp.float32),
        name="invariant_product",
        # Programs that read the same part of w are neighbours in time.
        grid=(-(-len(x) // TILE_X), -(-out // TILE_W), cut.parts),
        num_warps=NUM_WARPS,
        num_stages=NUM_STAGES[wave_size()],
        interpret=interpret,
    )
    total = found[0]
    for part in range(1, cut.parts):
        total = total + found[part]
    return total.astype(dtype)


def _program(x: Array, weights: Array, layer: Array, result: Array, *, cut: Cut, out: int) -> None:
    (tokens, size), part = x.shape, program_id(2)
    row = program_id(0) * TILE_X + jnp.arange(TILE_X, dtype=jnp.int32)
    column = program_id(1) * TILE_W + jnp.arange(TILE_W, dtype=jnp.int32)
    # Rows that do not exist read the last one's numbers: a mask would cost registers.
    of_x = jnp.minimum(row, tokens - 1)[:, None]
    of_w = (layer[0] * out + jnp.minimum(column, out - 1))[:, None]
    first = part * cut.steps

    def step(i: Array, total: Array) -> Array:
        at = (first + i) * cut.columns + jnp.arange(cut.columns, dtype=jnp.int32)[None, :]
        a, b = (_read(array, rows, at, size) for array, rows in ((x, of_x), (weights, of_w)))
        return total + dot(a, b, transpose=True)

    steps = jnp.minimum(cut.steps, -(-size // cut.columns) - first)
    tile = TILE_X, TILE_W
    total = lax.fori_loop(0, steps, step, jnp.zeros(tile, jnp.float32))
    place = result.at[jnp.full(tile, part), row[:, None], column[None, :]]
    exists = (row < tokens)[:, None] & (column < out)[None, :]
    store(place, total.astype(result.dtype), exists)


def _read(array: Array, rows: Array, columns: Array, size: int) -> Array:
    """Numbers of rows [R, 1] and columns [1, C]; zeros behind the last column."""
    place = array.at[rows, columns]
    if size % columns.shape[1] == 0:
        return load(place)
    inside = jnp.broadcast_to(columns < size, (len(rows), columns.shape[1]))
    return load(place, inside, jnp.zeros((), array.dtype))
