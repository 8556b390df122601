"""Sizes of products with matrices of codes, and which calls the kernel supports."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from pallas_kernels.device import target_device

ROWS = 64  # of the weight in a tile
# Most tokens in a tile: with sums of 32 columns, a tile of 128 needs more registers than there are.
MOST_TOKENS, MOST_OF_SMALL_SPANS = 128, 64
# Steps in shared memory, for tiles of few tokens and of many: two thread blocks fit on an SM.
STAGES, FEW_STAGES, FEW_TOKENS = 4, 2, 32
ALIGNMENT = 8  # rows of a swizzled tile of shared memory
SUMS = 32  # numbers of float32 in 128 bytes
DEPTHS = (128, 64)  # columns in a step: the first that divides those of the weight
# SMs of an H100, assumed when the device does not report its number of SMs.
USUAL_SMS = 132
# Thread blocks of an SM that wait for memory in turn, and the fewest steps that pay for one.
BLOCKS_PER_SM, FEWEST_STEPS = 4, 4


class Plan(NamedTuple):
    """Static sizes of a product.

    Attributes:
        rows, size: the weight's shape.
        group: columns that share a scale. 0: all of them do, and the caller scales.
        packed: whether a byte holds two codes.
        tokens: tokens in a tile, a multiple of 8.
        splits: thread blocks that share the columns of a row.
        depth: columns in a step.
        stages: steps in shared memory.
        minimums: whether the kernel adds groups' minimums.
    """

    rows: int
    size: int
    group: int
    packed: bool
    tokens: int
    splits: int
    depth: int
    stages: int
    minimums: bool = False

    @property
    def sums(self) -> int:
        """Sums of x in a row of shared memory: copies begin at multiples of 128 bytes there."""
        return -(-self.tokens // SUMS) * SUMS

    @property
    def span(self) -> int:
        """Columns whose sum is scaled at once."""
        return min(self.group or self.depth, self.depth)

    @property
    def part(self) -> int:
        """Columns of one product: those of a span, or every other one of it."""
        return self.span // 2 if self.packed else self.span

    @property
    def parts(self) -> int:
        """Products of a step."""
        return self.depth // self.part

    @property
    def spans(self) -> int:
        """Spans of a step."""
        return self.depth // self.span

    @property
    def steps(self) -> int:
        return self.size // self.depth

    @property
    def width(self) -> int:
        """Bytes of a row in a step."""
        return self.depth // 2 if self.packed else self.depth


def missing(x: Any, codes: Any, group: int) -> str | None:
    """Why this backend does not support a call, or None if it does."""
    rows, size = codes.shape[1], x.shape[1]
    wanted = codes.dtype if x.dtype.itemsize == 1 else jnp.dtype(jnp.bfloat16)
    if x.dtype != wanted:
        return f"x of {x.dtype} with codes of {codes.dtype}"
    if rows < ROWS or rows % ALIGNMENT or size % DEPTHS[-1]:
        return (
            f"weights [{rows}, {size}] (at least {ROWS} rows are needed, and multiples of "
            f"{ALIGNMENT} and {DEPTHS[-1]})"
        )
    # Columns of one product: of codes that are not widened, a step's; else those of an instruction.
    least = _depth(size) if x.dtype.itemsize == 1 else 32 if codes.dtype == jnp.uint8 else 16
    if group < size and (group % least or (_depth(size) % group and group % _depth(size))):
        return f"groups of {group} in rows of {size} columns (multiples of {least} are needed)"
    return None


def plan(tokens: int, rows: int, size: int, group: int, packed: bool) -> Plan:
    """Sizes for a product: as many splits as give each SM a few thread blocks."""
    most = MOST_OF_SMALL_SPANS if group <= 32 else MOST_TOKENS
    tile = min(-(-tokens // 8) * 8, most)
    blocks = -(-rows // ROWS) * -(-tokens // tile)
    wanted = BLOCKS_PER_SM * getattr(target_device(), "core_count", USUAL_SMS) // blocks
    depth = _depth(size)
    splits = max(1, min(wanted, size // depth // FEWEST_STEPS))
    stages = STAGES if tile <= FEW_TOKENS else FEW_STAGES
    return Plan(rows, size, group if group < size else 0, packed, tile, splits, depth, stages)


def _depth(size: int) -> int:
    return next(depth for depth in DEPTHS if size % depth == 0)
