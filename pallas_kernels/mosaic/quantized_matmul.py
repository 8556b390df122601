"""Products with matrices of codes, which are widened in registers on their way to the tensor core.

A thread block takes 64 rows of the weight and a tile of tokens. It copies steps of codes, scales
and x into a ring in shared memory. Codes become bfloat16, which holds each of them exactly, and
are the product's left operand; x.T is the right one. A group's sum is made in float32 and scaled
then, so that no scaled weight is rounded. A group's minimum is multiplied by the sum of x over
the group, which XLA makes before. Few tokens leave few thread blocks: these share the
columns of a row, and XLA adds their sums.

Two codes of 4 bits share a byte. The even columns of a span are multiplied first, then the odd
ones, so that no code changes its place; x comes in this order. A high nibble without the low one
is, as a signed byte, 16 times its code. Odd columns of x are divided by 16 instead.

The last tile of rows ends where the weight ends. It may overlap the tile before it, and then both
compute the same rows.
"""

import functools
import operator
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Float, Int, Shaped

from pallas_kernels.mosaic import plgpu
from pallas_kernels.mosaic.quantized_plan import ALIGNMENT, ROWS, Plan, plan


def parts_of(x: Shaped[Array, "T in"], sizes: Plan) -> Shaped[Array, "P rows part"]:
    """x as the kernel's products take it: part by part, in whole tiles of tokens."""
    whole = jnp.pad(x, ((0, -x.shape[0] % sizes.tokens), (0, 0)))
    if sizes.packed:
        pairs = whole.reshape(len(whole), -1, sizes.part, 2)
        pairs = pairs * jnp.array([1, 1 / 16], x.dtype)
        return pairs.transpose(1, 3, 0, 2).reshape(-1, len(whole), sizes.part)
    return whole.reshape(len(whole), -1, sizes.part).swapaxes(0, 1)


def sums_of(x: Shaped[Array, "T in"], sizes: Plan) -> Float[Array, "spans rows"]:
    """The sum of x over each span, for whole tiles of tokens, and for the last tile's copy.

    The order of additions is written out: XLA chooses another for some numbers of tokens.
    """
    left = x.reshape(len(x), -1, sizes.span).astype(jnp.float32)
    while left.shape[-1] > 1:  # a span is a power of two
        middle = left.shape[-1] // 2
        left = left[..., :middle] + left[..., middle:]
    sums = left[..., 0].T
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
    return functools.reduce(operator.add, sums)[: x.shape[0]]


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
