"""Transforms that only select or reorder rows: parts of fused tensors, heads, RoPE's pairs."""

from collections.abc import Sequence

import numpy as np

from jax_engine.weights.transforms import Declaration, Rows


def split(part: Declaration, start: int, stop: int, total: int, *, axis: int = 0) -> Rows:
    """Rows `start` to `stop - 1` of a tensor with `total` rows."""
    return Rows(part, np.arange(start, stop), total, axis)


def ungrouped(
    part: Declaration, groups: int, counts: Sequence[int], size: int = 1, *, axis: int = 0
) -> Rows:
    """Reorders rows that are stored group by group, so that each kind of row is contiguous.

    NeoX and BLOOM interleave q, k and v of each head: `groups=H, counts=(1, 1, 1), size=D`.
    Falcon stores a KV head's queries, k and v: `groups=K, counts=(H // K, 1, 1), size=D`.
    gpt-oss interleaves rows of gate and up: `groups=F, counts=(1, 1)`.

    Args:
        counts: how many blocks of `size` rows each kind has in a group.
    """
    total = groups * sum(counts) * size
    blocks = np.arange(total).reshape(groups, sum(counts), size)
    kinds = np.split(blocks, np.cumsum(counts)[:-1], axis=1)
    return Rows(part, np.concatenate([kind.reshape(-1) for kind in kinds]), total, axis)


def regrouped(
    part: Declaration, groups: int, counts: Sequence[int], size: int = 1, *, axis: int = 0
) -> Rows:
    """The reverse of `ungrouped`: rows of one kind, stored together, go back to their groups."""
    order = np.argsort(ungrouped(part, groups, counts, size).order)
    return Rows(part, order, len(order), axis)


def rope_halves(
    part: Declaration, heads: int, head_dim: int, rotary_dim: int | None = None, *, start: int = 0
) -> Rows:
    """Reorders rows of q or k from interleaved RoPE to halves.

    RoPE rotates row 2i of a head with row 2i + 1 if interleaved, row i with row i + D/2 in halves.

    Args:
        rotary_dim: how many of a head's rows are rotated; None: all.
        start: the first of them.
    """
    order = np.arange(heads)[:, None] * head_dim + _halves(head_dim, rotary_dim, start)
    return Rows(part, order.reshape(-1), heads * head_dim)


def rope_halves_of_norm(part: Declaration, head_dim: int) -> Rows:
    """Reorders the numbers [heads, D] of a norm of q or k in the same way."""
    return Rows(part, _halves(head_dim, None), head_dim, axis=1)


def _halves(head_dim: int, rotary_dim: int | None, start: int = 0) -> np.ndarray:
    """For each row of a head, its row in the interleaved order."""
    stop = start + (rotary_dim or head_dim)
    order = np.arange(head_dim)
    order[start:stop] = order[start:stop].reshape(-1, 2).T.reshape(-1)
    return order
