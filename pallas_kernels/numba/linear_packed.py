"""One chunk of a product with many rows of x: rows of weights are packed into columns first.

Packing takes as long as the products of some eight rows of x, and no sums of lanes are left to be
added up at the end of a row (Goto and van de Geijn, "Anatomy of High-Performance Matrix
Multiplication", 2008). A tile of x stays in the first cache while all columns pass, which stay in
the second.
"""

from pallas_kernels.numba.dot_rows import MULTIPLIES_PAIRS
from pallas_kernels.numba.jit import inner, processor_has
from pallas_kernels.numba.linear_chunk import Chunk
from pallas_kernels.numba.micro_kernel import COLUMNS, ROWS, VECTORS, add_tile, add_tile_of_pairs
from pallas_kernels.numba.packing import pack
from pallas_kernels.numba.row_shares import range_of
from pallas_kernels.numba.vectors import BYTES, LANES

# From so many rows of x on, and with AVX-512: with AVX2 (half the sums) it gains nothing.
MANY_TOKENS = 128
PACKS = processor_has("avx512f")
# Rows of weights and of x of a chunk, multiples of what the micro-kernel takes.
PACKED_ROWS, PACKED_TOKENS = 96, 252
PART = 768  # words of a row that are packed at once, at most
STEP = 4 * COLUMNS  # bytes from a word's columns to the next word's


@inner
def packs(tokens: int, size: int, bfloat16: bool) -> bool:
    """Whether a call with so many rows of x, padding included, packs rows of `size` numbers."""
    words = not bfloat16 or (MULTIPLIES_PAIRS and size % 2 == 0)
    return PACKS and words and tokens >= MANY_TOKENS


@inner
def packed_bytes(size: int) -> int:
    """What `multiply_packed` needs for chunks of rows of `size` numbers."""
    return PACKED_ROWS // COLUMNS * STEP * (min(size, PART) + LANES) + BYTES


@inner
def multiply_packed(chunk: Chunk, scratch: int, bfloat16: bool) -> None:
    """All products of a chunk. All sums run over the words in the same order."""
    right = (scratch + BYTES - 1) // BYTES * BYTES
    words = chunk.size // 2 if bfloat16 else chunk.size
    item = 2 if bfloat16 else 4  # bytes
    parts = max((words + PART - 1) // PART, 1)
    for part in range(parts):
        at, until = range_of(words, part, parts)
        depth = until - at
        panel_bytes = STEP * ((depth + LANES - 1) // LANES * LANES)
        _pack_rows(chunk, item, 4 * at, depth, right, panel_bytes)
        for token in range(0, chunk.tokens, ROWS):
            for first in range(0, chunk.rows, COLUMNS):
                panel = right + first // COLUMNS * panel_bytes
                _add_tile(chunk, item, token, first, 4 * at, depth, panel, part)


@inner
def _pack_rows(
    chunk: Chunk, item: int, offset: int, depth: int, right: int, panel_bytes: int
) -> None:
    """`depth` words of each row of weights, from `offset` bytes on, to panels of COLUMNS rows."""
    step = item * chunk.size
    for first in range(0, chunk.rows, LANES):
        panel, vector = first // COLUMNS, first // LANES % VECTORS
        place = right + panel * panel_bytes + vector * BYTES
        source = chunk.weights + first * step + offset
        pack(source, step, chunk.rows - 1 - first, depth, place, STEP)


@inner
def _add_tile(
    chunk: Chunk, item: int, token: int, first: int, offset: int, depth: int, panel: int, more: int
) -> None:
    """ROWS rows of x from `token` on with COLUMNS rows of weights from `first` on."""
    step, out_step = item * chunk.length, 4 * chunk.width
    left, last = chunk.x + token * step + offset, chunk.tokens - 1 - token
    out, columns = chunk.out + token * out_step + 4 * first, chunk.rows - first
    right = (panel, STEP, BYTES)
    if item == 2:
        add_tile_of_pairs(left, step, last, *right, depth, out, out_step, columns, more)
    else:
        add_tile(left, step, last, *right, depth, out, out_step, columns, more)
