"""PagedAttention (SOSP'23 section 4.1) for a ragged batch: the public operation."""

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from pallas_kernels.backends import Backend, choose_for_call, implementation
from pallas_kernels.call import Call, Options
from pallas_kernels.checks import check_call
from pallas_kernels.metadata import AttentionMetadata, make_metadata

if TYPE_CHECKING:
    # The caller knows which of the two it asked for. To tell a type checker takes two overloads of
    # the whole signature.
    Result = Any
else:
    Result = Float[Array, "T H D"] | tuple[Float[Array, "T H D"], Float[Array, "T H"]]


def paged_attention(
    q: Float[Array, "T H D"],
    kv_cache: Shaped[Array, "L kv N K B D"],
    block_tables: Int[Array, "S W"],
    context_lens: Int[Array, " S"],
    query_start_loc: Int[Array, " S+1"],
    *,
    layer: int | Int[Array, ""],
    scale: float,
    window: int | Int[Array, ""] | None = None,
    soft_cap: float | None = None,
    alibi_slopes: Float[Array, " H"] | None = None,
    sinks: Float[Array, " H"] | None = None,
    kv_scales: Float[Array, "L kv K"] | None = None,
    prompt_lens: Int[Array, " S"] | None = None,
    return_lse: bool = False,
    backend: Backend = None,
    metadata: AttentionMetadata | None = None,
) -> Result:
    """Causal attention of each sequence's new tokens over its paged context.

    Sequence i owns the tokens `query_start_loc[i]:query_start_loc[i+1]`. They are the last of its
    `context_lens[i]` tokens, and the cache already holds their keys and values. The token at
    position p attends to the positions j <= p (with a window: p - window < j <= p). Position j is
    in block `block_tables[i, j // B]`, slot `j % B`. A score is `scale * q.k`, then
    `soft_cap * tanh(score / soft_cap)`, then plus `slope * (j - p)`. A token's weights are the
    softmax of its scores. With a sink, the softmax is over the scores and the sink, which has no
    value.

    The contents of slots that no token attends to never affect the result, and table entries past
    the context are never followed. Unused sequences are at the end, with context length 0 and no
    tokens. Sums are accumulated in float32. The work is proportional to the contexts, not to W.

    Args:
        q: queries; H is a multiple of K.
        kv_cache: the cache, which is read and never copied. Its dtype is any float dtype, or
            float8_e4m3fn or int8 for a quantised cache. If its second axis has size 1, the values
            are the keys. Where a value is only the beginning of its key, the caller takes the
            beginning of the result.
        block_tables: physical blocks of each sequence.
        context_lens: tokens of each sequence, this step's included.
        query_start_loc: boundaries of the sequences' query tokens, ascending, from 0.
        layer: layer of the cache; may be traced.
        scale: factor of the scores, usually D ** -0.5.
        window: number of tokens that each token sees, itself included; None: all. A number is
            compiled into the kernel. An array serves layers that differ by it; it is at least 1,
            which is not checked, and 2**31 - 1 sees all.
        soft_cap: bound of the scores' magnitude; None: no bound.
        alibi_slopes: a slope for each head, or None.
        sinks: for each head a logit that takes part in the softmax as it is, or None.
        kv_scales: the scales of a quantised cache: a key or value is the stored number times its
            scale.
        prompt_lens: where each sequence's prompt ends. It chooses the order of additions: a query
            at a position of the prompt is a prefill's whatever their number, one behind it is a
            decode's. So a token's bits stay the same when it is computed again. None: a sequence
            with one query is a decode. "numba" and, on a CPU, "xla" heed it. "triton" does in
            metadata that was made with it and `batch_invariant`; else backends for GPUs do not.
        return_lse: whether to return also the log of the softmax's denominator, for
            `merge_partials`.
        backend: "mosaic" (Hopper), "triton" (NVIDIA GPUs from sm_80), "numba" (CPUs) or "xla"
            (any device). A tuple of names chooses the first that supports this call, None the best
            one. On a CPU, the kernels of a GPU backend are interpreted, slowly, if it is named
            alone; "mosaic" then needs up to four threads of XLA (NPROC=16 on a small machine).
        metadata: the result of `make_metadata`, to be shared between layers. Its backend runs the
            call. None makes it here.

    Returns:
        A vector for each token and head, in q's dtype; zeros for tokens past `query_start_loc[S]`.
        With `return_lse` also float32 natural logarithms, -inf for those tokens.

    Raises:
        ValueError: the shapes or options do not match, or the backend lacks a feature. The message
            names the feature, and a backend that has it. Or XLA has too few threads to interpret
            the kernel.
        MetadataError: the metadata is that of another step, of a backend that `backend` does not
            name, or of a backend that lacks a feature of this call.
    """
    layer = jnp.asarray(layer, jnp.int32)
    arrays = (q, kv_cache, block_tables, context_lens, query_start_loc, layer)
    if window is None or isinstance(window, int):
        static, traced = window, None
    else:
        static, traced = None, jnp.asarray(window, jnp.int32)
    call = Call(*arrays, alibi_slopes, sinks, kv_scales, traced, prompt_lens)
    options = Options(scale, static, soft_cap, return_lse)
    check_call(call, options)
    if metadata is None:
        name = choose_for_call(backend, call, options)
        batch = (block_tables, context_lens, query_start_loc, q.shape[0])
        metadata = make_metadata(*batch, backend=name)
    else:
        metadata.check(call, options, backend)
    out, lse = implementation(metadata.backend).attend(call, options, metadata.work)
    return (out, lse) if return_lse else out
