"""PagedAttention (SOSP'23 section 4.1) for a ragged batch: the public operation."""

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from pallas_kernels.backends import Backend, choose_for_call, implementation
from pallas_kernels.call import Call, Options
from pallas_kernels.checks import check_call
from pallas_kernels.metadata import AttentionMetadata, make_metadata

if TYPE_CHECKING:
    # Callers know which of the two they asked for; to tell a type checker takes two overloads of
    # the whole signature.
    Result = Any
else:
    Result = Float[Array, "T H D"] | tuple[Float[Array, "T H D"], Float[Array, "T H"]]


def paged_attention(
    q: Float[Array, "T H D"],
    kv_cache: Shaped[Array, "L 2 N K B D"],
    block_tables: Int[Array, "S W"],
    context_lens: Int[Array, " S"],
    query_start_loc: Int[Array, " S+1"],
    *,
    layer: int | Int[Array, ""],
    scale: float,
    window: int | None = None,
    soft_cap: float | None = None,
    alibi_slopes: Float[Array, " H"] | None = None,
    sinks: Float[Array, " H"] | None = None,
    kv_scales: Float[Array, "L 2 K"] | None = None,
    return_lse: bool = False,
    backend: Backend = None,
    metadata: AttentionMetadata | None = None,
) -> Result:
    """Causal attention of each sequence's new tokens over its paged context.

    The tokens of sequence i are `query_start_loc[i]:query_start_loc[i+1]`; they are the last of
    its `context_lens[i]` tokens, and their keys and values are in the cache already. The token
    at position p attends to the positions j <= p (with a window: p - window < j <= p), which lie
    in block `block_tables[i, j // B]`, slot `j % B`. A score is `scale * q.k`, then
    `soft_cap * tanh(score / soft_cap)`, then plus `slope * (j - p)`. A token's weights are the
    softmax of its scores; with a sink, of its scores and the sink, which has no value.

    Slots that no token attends to are never part of the result, whatever they hold, and table
    entries past the context are never followed. Unused sequences stand at the end, with context
    length 0 and no tokens. Accumulates in float32. The work is proportional to the contexts, not
    to W.

    Args:
        q: queries; H is a multiple of K.
        kv_cache: the cache; read, never copied. Of any float dtype, or quantised: float8_e4m3fn
            or int8.
        block_tables: physical blocks of each sequence.
        context_lens: tokens of each sequence, this step's included.
        query_start_loc: boundaries of the sequences' query tokens, ascending, from 0.
        layer: layer of the cache; may be traced.
        scale: factor of the scores, usually D ** -0.5.
        window: number of tokens each token sees, itself included; None sees all.
        soft_cap: bound of the scores' magnitude; None has none.
        alibi_slopes: one slope a head; None has none.
        sinks: one logit a head that takes part in the softmax as it is; None has none.
        kv_scales: of a quantised cache: a key or value is the stored number times its scale.
        return_lse: also return the log of the softmax's denominator, for `merge_partials`.
        backend: "mosaic" (NVIDIA GPUs from sm_90), "triton" (from sm_80), "numba" (CPUs) or "xla"
            (any device); a tuple of names takes the first that supports this call, None the best
            one. The kernels of a GPU backend named alone are interpreted, slowly, where there is
            no GPU but the CPU.
        metadata: from `make_metadata`, to share between layers; made here when None. Its backend
            runs the call.

    Returns:
        One vector a token and head, in q's dtype; zeros for tokens past `query_start_loc[S]`.
        With `return_lse` also float32 natural logarithms, -inf for those tokens.

    Raises:
        ValueError: shapes or options that do not fit, or a backend that lacks something; the
            message names it, and a backend that has it.
        MetadataError: metadata of another step, of a backend that `backend` does not name, or of
            one that lacks something.
    """
    layer = jnp.asarray(layer, jnp.int32)
    arrays = (q, kv_cache, block_tables, context_lens, query_start_loc, layer)
    call = Call(*arrays, alibi_slopes, sinks, kv_scales)
    options = Options(scale, window, soft_cap, return_lse)
    check_call(call, options)
    if metadata is None:
        name = choose_for_call(backend, call, options)
        batch = (block_tables, context_lens, query_start_loc, q.shape[0])
        metadata = make_metadata(*batch, backend=name)
    else:
        metadata.check(call, options, backend)
    out, lse = implementation(metadata.backend).attend(call, options, metadata.work)
    return (out, lse) if return_lse else out
