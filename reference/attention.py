"""Attention, from the textbook sum to blocks scattered over a pool.

The paper's section 2.1 gives the sum (Eq. 3): a query looks at every key before it,

    a_ij = exp(q_i . k_j / sqrt(D)) / sum_t exp(q_i . k_t / sqrt(D)),      o_i = sum_j a_ij v_j.

Section 4.1 (PagedAttention, Eq. 4) writes the same sum a block of B tokens at a time, so that the
keys and values of a sequence need not lie side by side: a *block table* says where each block is.
This file goes there in four steps, each equal to the one before:

    softmax_attention    the sum as it stands
    online_attention     one block after another, never holding all scores (online softmax)
    split_attention      blocks shared out among independent workers, then `merge_partials`
    paged_attention      the blocks found through a table, for a ragged batch of sequences

Legend: T tokens in the step, S sequences, H query heads, K KV heads, D head dim, N blocks in the
pool, B block size, L layers, W table width in blocks, n keys that one query sees, P partials.
All sums are taken in float64; only results are rounded to the dtype of the queries.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from jaxtyping import Float, Int, Shaped


def attention_scores(
    q: Float[np.ndarray, "D"],
    keys: Float[np.ndarray, "n D"],
    *,
    scale: float,
    soft_cap: float | None = None,
    alibi_slope: float | None = None,
) -> Float[np.ndarray, "n"]:
    """What one query thinks of the n keys it sees, before the softmax.

    The keys are consecutive positions, and the last one is the query's own. In this order:

    * `scale * q.k`, as a rule with scale = 1/sqrt(D);
    * `soft_cap` c squeezes a score s into (-c, c) as c * tanh(s / c)  (Gemma 2);
    * `alibi_slope` m adds m * (key position - query position)  (ALiBi), so 0 for the last key.

    >>> q, keys = np.array([1.0, 2.0]), np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> attention_scores(q, keys, scale=1.0).tolist()
    [1.0, 2.0, 3.0]
    >>> attention_scores(q, keys, scale=1.0, alibi_slope=0.5).tolist()
    [0.0, 1.5, 3.0]
    >>> attention_scores(q, keys, scale=1.0, soft_cap=2.0).round(3).tolist()
    [0.924, 1.523, 1.81]
    """
    scores = keys.astype(np.float64) @ q.astype(np.float64) * scale
    if soft_cap is not None:
        scores = soft_cap * np.tanh(scores / soft_cap)
    if alibi_slope is not None:
        scores = scores + alibi_slope * np.arange(1 - len(keys), 1)
    return scores


def softmax_attention(
    scores: Float[np.ndarray, "n"], values: Float[np.ndarray, "n D"]
) -> Float[np.ndarray, "D"]:
    """Eq. 3: the mean of the values, weighted by exp(score).

    The largest score is taken off first. It cancels in the quotient, and exp cannot overflow.

    >>> softmax_attention(np.log([1.0, 3.0]), np.array([[4.0], [8.0]])).round(9).tolist()
    [7.0]
    """
    weights = np.exp(scores - scores.max())
    return np.asarray(weights @ values.astype(np.float64) / weights.sum())


def online_attention(
    blocks: Iterable[tuple[Float[np.ndarray, "_"], Float[np.ndarray, "_ D"]]],
) -> Float[np.ndarray, "D"]:
    """Eq. 4, one block at a time, with the scores of one block in memory.

    `blocks` yields the (scores, values) of each block, at least one. Three things are carried from
    block to block: the largest score so far, the sum of weights, the weighted sum of values. When a
    block brings a larger score, what was summed so far is scaled down to it (online softmax).

    >>> scores, values = np.log([1.0, 3.0, 4.0]), np.array([[4.0], [8.0], [2.0]])
    >>> online_attention([(scores[:2], values[:2]), (scores[2:], values[2:])]).round(9).tolist()
    [4.5]
    >>> softmax_attention(scores, values).round(9).tolist()
    [4.5]
    """
    largest, total, weighted = -np.inf, 0.0, np.zeros(1)
    for scores, values in blocks:
        new_largest = max(largest, float(scores.max()))
        shrink = np.exp(largest - new_largest)  # exp(-inf) = 0 on the first block
        weights = np.exp(scores - new_largest)
        total = total * shrink + weights.sum()
        weighted = weighted * shrink + weights @ values.astype(np.float64)
        largest = new_largest
    return weighted / total


def partial_attention(
    scores: Float[np.ndarray, "n"], values: Float[np.ndarray, "n D"]
) -> tuple[Float[np.ndarray, "D"], float]:
    """Attention over a part of the keys, and the log of the part's sum of weights (lse).

    The lse is all that another part must know to weigh this result against its own. A part without
    keys has the result 0 and the lse -inf: it weighs nothing.

    >>> partial_attention(np.zeros(0), np.zeros((0, 2)))
    (array([0., 0.]), -inf)
    """
    if len(scores) == 0:
        return np.zeros(values.shape[1]), float(-np.inf)
    largest = scores.max()
    weights = np.exp(scores - largest)
    total = weights.sum()
    return np.asarray(weights @ values.astype(np.float64) / total), float(largest + np.log(total))


def merge_partials(
    out: Float[np.ndarray, "P *rest D"], lse: Float[np.ndarray, "P *rest"]
) -> tuple[Float[np.ndarray, "*rest D"], Float[np.ndarray, "*rest"]]:
    """One result out of P partial ones: the mean weighted by exp(lse), and the lse of the union.

    Merging is associative and commutative up to rounding, and a partial with lse -inf is neutral,
    whatever its `out` holds. If all are empty, so is the result: zeros and -inf.

    >>> merged, lse = merge_partials(np.array([[2.0], [6.0]]), np.log([1.0, 3.0]))
    >>> merged.round(9).tolist(), round(float(np.exp(lse)), 9)
    ([5.0], 4.0)
    """
    lse = lse.astype(np.float64)
    empty = np.isneginf(lse)
    largest = lse.max(axis=0)
    largest = np.where(np.isneginf(largest), 0.0, largest)  # avoids -inf minus -inf below
    weights = np.exp(lse - largest)
    total = weights.sum(axis=0)
    weighted = (weights[..., None] * np.where(empty[..., None], 0.0, out)).sum(axis=0)
    merged = weighted / np.where(total == 0.0, 1.0, total)[..., None]
    with np.errstate(divide="ignore"):  # log(0) = -inf is the lse of nothing
        return merged, np.asarray(largest + np.log(total))


def split_attention(
    scores: Float[np.ndarray, "n"], values: Float[np.ndarray, "n D"], num_splits: int
) -> Float[np.ndarray, "D"]:
    """Split-KV (Flash-Decoding): cut the keys into parts, attend to each alone, merge.

    One query over a long context is one long sum, which a single worker would add up alone. Cut
    into parts it keeps a whole GPU busy. Parts may be empty, when there are more parts than keys.

    Weights 1, 1 and 2, in one part, in two, and in five of which two are empty:

    >>> scores, values = np.log([1.0, 1.0, 2.0]), np.array([[4.0], [8.0], [2.0]])
    >>> [split_attention(scores, values, parts).round(9).tolist() for parts in (1, 2, 5)]
    [[4.0], [4.0], [4.0]]
    """
    score_parts = np.array_split(scores, num_splits)
    value_parts = np.array_split(values, num_splits)
    partials = [partial_attention(s, v) for s, v in zip(score_parts, value_parts, strict=True)]
    out = np.stack([part for part, _ in partials])
    return merge_partials(out, np.array([lse for _, lse in partials]))[0]


def causal_attention(
    q: Float[np.ndarray, "T H D"],
    keys: Float[np.ndarray, "n K D"],
    values: Float[np.ndarray, "n K V"],
    *,
    scale: float,
    window: int | None = None,
    chunk: int | None = None,
    soft_cap: float | None = None,
    alibi_slopes: Float[np.ndarray, "H"] | None = None,
    sinks: Float[np.ndarray, "H"] | None = None,
) -> tuple[Float[np.ndarray, "T H V"], Float[np.ndarray, "T H"]]:
    """The last T positions of a sequence of n attend to it; every head, keys side by side.

    The query at position p sees the keys at 0..p (it is causal); with a sliding `window` only the
    last `window` of them, itself included. With a `chunk` it sees no key before the last position
    up to p that is a multiple of `chunk` (Llama 4). What it sees is a slice, so no mask is needed,
    and a key out of sight cannot disturb the sum even if it is not a number.

    Grouped-query attention: K divides H, and query head h reads KV head h // (H // K).

    A *sink* (gpt-oss) is a score of the head's own that joins every softmax: one more key, seen by
    all queries, whose value is zero. A query that finds nothing of interest can give it its weight.

    A value has V numbers, as a rule as many as a key.

    Returns the result and its lse, as `partial_attention` does; the sink's weight counts in it.
    Raises ValueError when there are more queries than positions.
    """
    num_queries, num_heads, _ = q.shape
    group = num_heads // keys.shape[1]
    if num_queries > len(keys):
        raise ValueError(
            f"{num_queries} queries, but the context has only {len(keys)} positions: "
            "context_lens must include the tokens of this step"
        )
    out = np.zeros((*q.shape[:2], values.shape[2]), q.dtype)
    lse = np.zeros(q.shape[:2])
    for t in range(num_queries):
        position = len(keys) - num_queries + t
        first = 0 if window is None else max(0, position - window + 1)
        first = first if chunk is None else max(first, position - position % chunk)
        seen = slice(first, position + 1)
        for h in range(num_heads):
            scores = attention_scores(
                q[t, h],
                keys[seen, h // group],
                scale=scale,
                soft_cap=soft_cap,
                alibi_slope=None if alibi_slopes is None else float(alibi_slopes[h]),
            )
            seen_values = values[seen, h // group]
            if sinks is not None:
                scores = np.append(scores, sinks[h])
                seen_values = np.pad(seen_values, ((0, 1), (0, 0)))
            out[t, h], lse[t, h] = partial_attention(scores, seen_values)
    return out, lse


def kv_blocks(
    kv: Shaped[np.ndarray, "kv N K B D"], block_table: Int[np.ndarray, "W"], context_len: int
) -> Iterator[tuple[Shaped[np.ndarray, "_ K D"], Shaped[np.ndarray, "_ K D"]]]:
    """Keys and values of the first `context_len` positions, block by block in the table's order.

    Position p lies in block `block_table[p // B]` at offset `p % B` (Figure 5). Slots behind the
    last position are not touched, nor is a table entry that no position needs. Where there is one
    array instead of two, the values are the keys.

    >>> kv = np.arange(8.0).reshape(2, 4, 1, 1, 1)      # 4 blocks of one slot; keys are 0..3
    >>> [k.item() for k, v in kv_blocks(kv, np.array([2, 0, 3, -1]), 3)]
    [2.0, 0.0, 3.0]
    """
    num_blocks, block_size = kv.shape[1], kv.shape[3]
    for start in range(0, context_len, block_size):
        block = int(block_table[start // block_size])
        if not 0 <= block < num_blocks:
            raise IndexError(f"block {block} of a table is not one of 0..{num_blocks - 1}")
        filled = min(block_size, context_len - start)
        keys, values = kv[0, block, :, :filled], kv[-1, block, :, :filled]
        yield keys.swapaxes(0, 1), values.swapaxes(0, 1)


def dequantize(
    stored: Shaped[np.ndarray, "n K D"], scales: Float[np.ndarray, "K"]
) -> Float[np.ndarray, "n K D"]:
    """The numbers that 8-bit keys or values stand for, with one scale for each KV head.

    >>> dequantize(np.array([[[-2], [3]]], np.int8), np.array([0.5, 10.0])).tolist()
    [[[-1.0], [30.0]]]
    """
    return np.asarray(stored.astype(np.float64) * scales[:, None])


def paged_attention(
    q: Float[np.ndarray, "T H D"],
    kv_cache: Shaped[np.ndarray, "L kv N K B D"],
    block_tables: Int[np.ndarray, "S W"],
    context_lens: Int[np.ndarray, "S"],
    query_start_loc: Int[np.ndarray, "S+1"],
    *,
    layer: int,
    scale: float,
    window: int | None = None,
    chunk: int | None = None,
    soft_cap: float | None = None,
    alibi_slopes: Float[np.ndarray, "H"] | None = None,
    sinks: Float[np.ndarray, "H"] | None = None,
    kv_scales: Float[np.ndarray, "L kv K"] | None = None,
) -> tuple[Float[np.ndarray, "T H D"], Float[np.ndarray, "T H"]]:
    """PagedAttention (section 4.1, Figure 5) for a ragged batch: the result and its lse.

    Sequence s owns the queries `query_start_loc[s]:query_start_loc[s + 1]`. They are its last
    positions: `context_lens[s]` counts them too, and their keys and values are already in the cache
    when this is called. A prompt, a chunk of one and a decode are the same thing, a few new tokens
    on a longer context. A sequence without queries is padding; tokens that belong to no sequence
    come out as zeros, with the lse -inf. `kv_scales` belong to a cache of 8-bit numbers.

    A kernel walks the blocks with `online_attention`. Here they are first laid side by side: it is
    the same sum, and it makes the result independent of the block size down to the last bit.
    """
    out, lse = np.zeros_like(q), np.full(q.shape[:2], -np.inf)
    for s in range(len(context_lens)):
        mine = slice(int(query_start_loc[s]), int(query_start_loc[s + 1]))
        if mine.start == mine.stop:
            continue
        blocks = list(kv_blocks(kv_cache[layer], block_tables[s], int(context_lens[s])))
        keys = np.concatenate([keys for keys, _ in blocks])
        values = np.concatenate([values for _, values in blocks])
        if kv_scales is not None:
            scales = kv_scales[layer]
            keys, values = dequantize(keys, scales[0]), dequantize(values, scales[-1])
        out[mine], lse[mine] = causal_attention(
            q[mine],
            keys,
            values,
            scale=scale,
            window=window,
            chunk=chunk,
            soft_cap=soft_cap,
            alibi_slopes=alibi_slopes,
            sinks=sinks,
        )
    return out, lse
