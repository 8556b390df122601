"""Multi-head latent attention (DeepSeek V2, arXiv 2405.04434): a cache of latents.

In grouped-query attention a token leaves keys and values in the cache, 2 K D numbers a layer. Here
all heads make their keys and values of one short vector, the token's *latent* of C numbers, each
by a matrix of its own. So the cache needs the latent alone. A rotation depends on the position and
cannot wait; therefore a key has a second part of R numbers, which all heads share and which is
rotated before it is stored. A token leaves C + R numbers a layer:

    stored           [ latent | shared part ]
    key of head h    [ K_h latent | shared part ]
    value of head h    V_h latent

For the cache that is a single head of keys without values: `KVCache` with `values_in_keys`. This
chapter makes the keys and values of the whole context, then attends, as the formula says. A fast
engine moves the matrices to the other side of the sums, since q . (K_h latent) = (q K_h) . latent,
and attends to the latents as they lie.

Legend: T tokens in the step, S sequences, H heads, E model width, C numbers of a latent, R of the
shared part, P of a key's other part, V of a value, n tokens of a context, L layers, N blocks in the
pool, B block size, W table width in blocks.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from reference.attention import causal_attention, dequantize, kv_blocks
from reference.linear import linear
from reference.norms import normalise
from reference.transformer_config import LatentConfig

Weights = Mapping[str, np.ndarray]


def latent_queries(
    weights: Weights, name: str, x: Float[np.ndarray, "T E"], sizes: LatentConfig
) -> tuple[Float[np.ndarray, "T H P"], Float[np.ndarray, "T H R"]]:
    """Both parts of every head's query, not rotated; by way of a latent of their own, if any."""
    if sizes.q_rank is None:
        made = linear(weights, f"{name}.q_proj", x)
    else:
        latent = linear(weights, f"{name}.q_a_proj", x)
        latent = _norm(weights, f"{name}.q_a_layernorm", latent, sizes)
        made = linear(weights, f"{name}.q_b_proj", latent)
    heads = made.reshape(len(x), -1, sizes.plain + sizes.rotated)
    plain, rotated = np.split(heads, [sizes.plain], axis=-1)
    return plain, rotated


def latent_keys(
    weights: Weights, name: str, x: Float[np.ndarray, "T E"], sizes: LatentConfig
) -> tuple[Float[np.ndarray, "T 1 C"], Float[np.ndarray, "T 1 R"]]:
    """Each token's latent, and the part of its keys that all heads share, not rotated."""
    made = linear(weights, f"{name}.kv_a_proj_with_mqa", x)
    latent, shared = np.split(made, [sizes.kv_rank], axis=-1)
    latent = _norm(weights, f"{name}.kv_a_layernorm", latent, sizes)
    return latent[:, None], shared[:, None]


def _norm(
    weights: Weights, name: str, x: Float[np.ndarray, "T C"], sizes: LatentConfig
) -> Float[np.ndarray, "T C"]:
    weight = weights[f"{name}.weight"]
    return normalise(x, weight, kind="rms", eps=sizes.eps).astype(x.dtype)


def keys_and_values(
    weights: Weights, name: str, stored: Float[np.ndarray, "n C+R"], sizes: LatentConfig
) -> tuple[Float[np.ndarray, "n H P+R"], Float[np.ndarray, "n H V"]]:
    """Every head's keys and values, of what the cache holds for some tokens.

    One token and one head. The latent is 5, the shared part 9; the key is 1 x 5, the value 2 x 5.

    >>> sizes = LatentConfig(kv_rank=1, rotated=1, plain=1, value_dim=1)
    >>> weights = {"layer.kv_b_proj.weight": np.array([[1.0], [2.0]])}
    >>> keys, values = keys_and_values(weights, "layer", np.array([[5.0, 9.0]]), sizes)
    >>> keys.tolist(), values.tolist()
    ([[[5.0, 9.0]]], [[[10.0]]])
    """
    latents, shared = np.split(stored, [sizes.kv_rank], axis=-1)
    made = linear(weights, f"{name}.kv_b_proj", latents)
    heads = made.reshape(len(stored), -1, sizes.plain + sizes.value_dim)
    plain, values = np.split(heads, [sizes.plain], axis=-1)
    everywhere = np.repeat(shared[:, None], heads.shape[1], axis=1)
    return np.concatenate([plain, everywhere], axis=-1), values


def latent_attention(
    q: Float[np.ndarray, "T H P+R"],
    kv_cache: Float[np.ndarray, "L 1 N 1 B C+R"],
    block_tables: Int[np.ndarray, "S W"],
    context_lens: Int[np.ndarray, "S"],
    query_start_loc: Int[np.ndarray, "S+1"],
    *,
    layer: int,
    weights: Weights,
    name: str,
    sizes: LatentConfig,
    kv_scales: Float[np.ndarray, "L 1 1"] | None = None,
    **options: Any,
) -> Float[np.ndarray, "T H V"]:
    """Attention of a ragged batch to a cache of latents; see `reference.attention.paged_attention`.

    `options` are those of `reference.attention.causal_attention`.
    """
    out = np.zeros((*q.shape[:2], sizes.value_dim), q.dtype)
    for s in range(len(context_lens)):
        mine = slice(int(query_start_loc[s]), int(query_start_loc[s + 1]))
        if mine.start == mine.stop:
            continue
        blocks = kv_blocks(kv_cache[layer], block_tables[s], int(context_lens[s]))
        stored = np.concatenate([keys for keys, _ in blocks])
        if kv_scales is not None:
            stored = dequantize(stored, kv_scales[layer, 0])
        keys, values = keys_and_values(weights, name, stored[:, 0], sizes)
        out[mine], _ = causal_attention(q[mine], keys, values, **options)
    return out
