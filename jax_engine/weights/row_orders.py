"""Transforms that only choose rows: a part of a fused tensor, heads put in order, RoPE's pairs."""

from collections.abc import Sequence

import numpy as np

from jax_engine.weights.transforms import Declaration, Rows


def split(part: Declaration, start: int, stop: int, total: int, *, axis: int = 0) -> Rows:
    """Rows `start` to `stop - 1` of a tensor that has `total`."""
    return Rows(part, np.arange(start, stop), total, axis)


def ungrouped(
    part: Declaration, groups: int, counts: Sequence[int], size: int = 1, *, axis: int = 0
) -> Rows:
    """Kinds of rows that stand group by group, put kind by kind.

    NeoX and BLOOM have q, k and v of each head in turns: `groups=H, counts=(1, 1, 1), size=D`.
    Falcon has a KV head's queries, its k and its v: `groups=K, counts=(H // K, 1, 1), size=D`.
    gpt-oss has rows of gate and up in turns: `groups=F, counts=(1, 1)`.

    Args:
        counts: how many blocks of `size` rows each kind has in a group.
    """
    total = groups * sum(counts) * size
    blocks = np.arange(total).reshape(groups, sum(counts), size)
    kinds = np.split(blocks, np.cumsum(counts)[:-1], axis=1)
    return Rows(part, np.concatenate([kind.reshape(-1) for kind in kinds]), total, axis)


def rope_halves(
    part: Declaration, heads: int, head_dim: int, rotary_dim: int | None = None
) -> Rows:
    """Rows of q or k from interleaved RoPE's order to that of halves.

    Interleaved, row 2i of a head turns with row 2i + 1; in halves, row i with row i + D/2.

    Args:
        rotary_dim: how many of a head's rows turn; None: all of them.
    """
    turning = rotary_dim or head_dim
    of_head = np.arange(head_dim)
    of_head[:turning] = of_head[:turning].reshape(-1, 2).T.reshape(-1)
    order = np.arange(heads)[:, None] * head_dim + of_head
    return Rows(part, order.reshape(-1), heads * head_dim)
