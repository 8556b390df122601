"""Products with matrices of codes, which are widened in registers on their way to the tensor core.

A thread block takes 64 rows of the weight and a tile of tokens. It copies steps of codes, scales
and x into a ring in shared memory. Codes become bfloat16, which holds each of them exactly, and
are the product's left operand; x.T is the right one. A group's sum is made in float32 and scaled
then, so that no scaled weight is rounded. Few tokens leave few thread blocks: these share the
columns of a row, and XLA adds their sums.

Two codes of 4 bits share a byte. The even columns of a span are multiplied first, then the odd
ones, so that no code changes its place; x comes in this order. A high nibble without the low one
is, as a signed byte, 16 times its code. Odd columns of x are divided by 16 instead.

The last tile of rows ends where the weight ends. It may overlap the tile before it, and then both
compute the same rows.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Float, Int, Shaped

from pallas_kernels.device import target_device
from pallas_kernels.mosaic import plgpu

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
        rows, size: of the weight.
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


def parts_of(x: Shaped[Array, "T in"], sizes: Plan) -> Shaped[Array, "P rows part"]:
    """x as the kernel's products take it: part by part, in whole tiles of tokens."""
    whole = jnp.pad(x, ((0, -x.shape[0] % sizes.tokens), (0, 0)))
    if sizes.packed:
        pairs = whole.reshape(len(whole), -1, sizes.part, 2)
        pairs = pairs * jnp.array([1, 1 / 16], x.dtype)
        return pairs.transpose(1, 3, 0, 2).reshape(-1, len(whole), sizes.part)
    return whole.reshape(len(whole), -1, sizes.part).swapaxes(0, 1)


def sums_of(x: Shaped[Array, "T in"], sizes: Plan) -> Float[Array, "spans rows"]:
    """The sum of x over each span, for whole tiles of tokens, and for the last tile's copy."""
    sums = x.reshape(len(x), -1, sizes.span).astype(jnp.float32).sum(-1).T
    return jnp.pad(sums, ((0, 0), (0, -len(x) % sizes.tokens + sizes.sums - sizes.tokens)))


def multiply(
    x: Shaped[Array, "T in"],
    codes: Shaped[Array, "L out bytes"],
    scales: Float[Array, "L groups out"],
    minimums: Float[Array, "L groups out"] | None,
    layer: Int[Array, ""],
    group: int,
    *,
    interpret: bool,
) -> Float[Array, "T out"]:
    """Products in float32. If all columns share a scale, without it and without minimums."""
    sizes = plan(x.shape[0], codes.shape[1], x.shape[1], group, codes.dtype == jnp.uint8)
    sizes = sizes._replace(minimums=minimums is not None and sizes.group > 0)
    more = (minimums, sums_of(x, sizes)) if sizes.minimums else ()
    parts = parts_of(x, sizes)
    blocks = -(-sizes.rows // ROWS)
    sums: Array = plgpu.kernel(
        functools.partial(_body, sizes, interpret),
        interpret=interpret,
        out_type=jax.ShapeDtypeStruct((sizes.splits, parts.shape[1], sizes.rows), jnp.float32),
        scratch_types=_scratch(sizes, codes.dtype, x.dtype, interpret),
        grid=(blocks, parts.shape[1] // sizes.tokens, sizes.splits),
        grid_names=("block", "tile", "split"),
    )(parts, codes, scales, layer[None], *more)
    return sums.sum(0)[: x.shape[0]]


def _scratch(sizes: Plan, code: Any, dtype: Any, interpret: bool) -> dict[str, Any]:
    copies = 1 + sizes.parts + bool(sizes.group) + 2 * sizes.minimums
    x_steps = plgpu.tiles((sizes.stages * sizes.parts, sizes.tokens, sizes.part), dtype)
    scratch = {
        # Sums are stored when no step is left.
        "x_steps_or_sums": plgpu.RefUnion(x_steps, plgpu.SMEM((sizes.tokens, ROWS), jnp.float32)),
        "code_steps": plgpu.tiles((sizes.stages, ROWS, sizes.width), code),
        "arrived": plgpu.Barrier(num_arrivals=copies, num_barriers=sizes.stages),
    }
    if sizes.group:
        scratch["scale_steps"] = plgpu.SMEM((sizes.stages, sizes.spans, ROWS), jnp.float32)
    if sizes.minimums:
        scratch["minimum_steps"] = plgpu.SMEM((sizes.stages, sizes.spans, ROWS), jnp.float32)
        scratch["sum_steps"] = plgpu.SMEM((sizes.stages, sizes.spans, sizes.sums), jnp.float32)
    if interpret and code != dtype:
        scratch["staging"] = plgpu.SMEM((ROWS, sizes.part), dtype)
    return scratch


def _body(
    sizes: Plan,
    interpret: bool,
    x: Any,  # [P, T, part]
    codes: Any,  # [L, out, bytes]
    scales: Any,  # [L, groups, out]
    layer: Any,  # [1]
    *more: Any,  # [L, groups, out] and [spans, T], where there are minimums; [splits, T, out]
    x_steps_or_sums: Any,
    code_steps: Any,
    arrived: Any,
    scale_steps: Any = None,
    minimum_steps: Any = None,
    sum_steps: Any = None,
    staging: Any = None,
) -> None:
    *added, out = more
    x_steps, sums = x_steps_or_sums
    split, number = lax.axis_index("split"), layer[0]
    first = plgpu.div(sizes.steps * split, sizes.splits)
    end = plgpu.div(sizes.steps * (split + 1), sizes.splits)
    row = jnp.minimum(lax.axis_index("block") * ROWS, sizes.rows - ROWS)
    rows = pl.ds(pl.multiple_of(row, ALIGNMENT), ROWS)
    token = lax.axis_index("tile") * sizes.tokens
    tokens = pl.ds(token, sizes.tokens)

    def fetch(step: Any, slot: Any) -> None:
        barrier = arrived.at[slot]
        held = pl.ds(step * sizes.width, sizes.width)
        plgpu.copy_gmem_to_smem(codes.at[number, rows, held], code_steps.at[slot], barrier)
        for part in range(sizes.parts):
            from_x, to = x.at[step * sizes.parts + part, tokens], slot * sizes.parts + part
            plgpu.copy_gmem_to_smem(from_x, x_steps.at[to], barrier)
        if sizes.group:
            groups = pl.ds(plgpu.div(step * sizes.depth, sizes.group), sizes.spans)
            plgpu.copy_gmem_to_smem(scales.at[number, groups, rows], scale_steps.at[slot], barrier)
        if sizes.minimums:
            minimums, x_sums = added
            lowest = minimums.at[number, groups, rows]
            plgpu.copy_gmem_to_smem(lowest, minimum_steps.at[slot], barrier)
            some = x_sums.at[pl.ds(step * sizes.spans, sizes.spans), pl.ds(token, sizes.sums)]
            plgpu.copy_gmem_to_smem(some, sum_steps.at[slot], barrier)

    def add(step: jax.Array, total: jax.Array) -> jax.Array:
        slot = plgpu.rem(step - first, sizes.stages)
        plgpu.barrier_wait(arrived.at[slot])
        narrow = code_steps.dtype == x.dtype
        held = code_steps.at[slot] if narrow else plgpu.load_codes(code_steps.at[slot])
        for span in range(sizes.spans):
            left = [held] if narrow else _widened(held, sizes, span)
            part = slot * sizes.parts + span * len(left)
            right = [x_steps.at[part + i].transpose((1, 0)) for i in range(len(left))]
            summed = plgpu.sum_of_products(left, right, staging)
            if sizes.group:
                scale = plgpu.load_rows(scale_steps.at[slot, span])
                summed = summed * plgpu.across(scale, sizes.tokens)
            if sizes.minimums:
                lowest = plgpu.load_rows(minimum_steps.at[slot, span])
                of_x = plgpu.load_columns(sum_steps.at[slot, span, pl.ds(0, sizes.tokens)])
                added_up = plgpu.across(lowest, sizes.tokens) * plgpu.down(of_x, ROWS)
                summed = summed + added_up
            total = total + summed
        following = step + sizes.stages
        plgpu.commit_smem()  # all warps have read this step
        pl.when(following < end)(functools.partial(fetch, following, slot))
        return total

    for ahead in range(sizes.stages):
        pl.when(first + ahead < end)(functools.partial(fetch, first + ahead, ahead))
    total = lax.fori_loop(first, end, add, jnp.zeros((ROWS, sizes.tokens), jnp.float32))
    sums.transpose((1, 0))[...] = plgpu.transposed(total)
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(sums, out.at[split, tokens, rows])
    plgpu.wait_smem_to_gmem(0)


def _widened(held: jax.Array, sizes: Plan, span: int) -> list[jax.Array]:
    """The codes of a span as bfloat16: one array, or those of even columns and of odd ones."""
    width = sizes.part
    some = lax.slice(held, (0, span * width), (ROWS, (span + 1) * width))
    if not sizes.packed:
        return [plgpu.left_operand(some)]
    low = lax.bitcast_convert_type(some & jnp.uint8(0x0F), jnp.int8)
    high = lax.bitcast_convert_type((some ^ jnp.uint8(0x80)) & jnp.uint8(0xF0), jnp.int8)
    return [plgpu.left_operand(low) - jnp.bfloat16(8), plgpu.left_operand(high)]
