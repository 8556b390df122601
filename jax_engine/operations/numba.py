"""The same operations by the kernels for a CPU.

The arguments and results are those of `xla.py`.
"""

from collections.abc import Callable
from typing import Any, Literal

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from cpu_kernels import norms
from cpu_kernels.linear.linear import written
from cpu_kernels.sampling.draw import draw as draw_kernel
from cpu_kernels.sampling.softmax_sums import softmax_sums
from cpu_kernels.zeros import zeros as zeros
from jax_engine.operations.equal_bits import in_whole_vectors
from jax_engine.sampling.draw import uniforms
from jax_engine.sampling.sampling_inputs import SamplingInputs
from jax_engine.weights.low_rank import RANKS, A, B, LowRank


def add_rms_norm(
    x: Float[Array, "T E"],
    residual: Float[Array, "T E"],
    weight: Float[Array, " E"],
    num_rows: Int[Array, ""],
    *,
    eps: float,
) -> tuple[Float[Array, "T E"], Float[Array, "T E"]]:
    """See `xla.add_rms_norm`. Rows that are not wanted cost nothing, and become zeros."""
    if residual.dtype == jnp.float16:
        return _added(rms_norm, x, residual, weight, num_rows, eps=eps)
    return norms.add_rms_norm(x.astype(jnp.float32), residual, weight, num_rows, eps=eps)


def rms_norm(
    x: Float[Array, "T E"],
    weight: Float[Array, " E"],
    num_rows: Int[Array, ""],
    *,
    eps: float,
    dtype: jnp.dtype,
) -> Float[Array, "T E"]:
    """See `xla.rms_norm`."""
    wide = x.astype(jnp.float32)
    normed = norms.rms_norm(wide, weight, num_rows, eps=eps, dtype=written(dtype))
    return normed.astype(dtype)


def add_layer_norm(
    x: Float[Array, "T E"],
    residual: Float[Array, "T E"],
    weight: Float[Array, " E"],
    bias: Float[Array, " E"] | None,
    num_rows: Int[Array, ""],
    *,
    eps: float,
) -> tuple[Float[Array, "T E"], Float[Array, "T E"]]:
    """See `xla.add_layer_norm`."""
    if residual.dtype == jnp.float16:
        return _added(layer_norm, x, residual, weight, bias, num_rows, eps=eps)
    return norms.add_layer_norm(x.astype(jnp.float32), residual, weight, bias, num_rows, eps=eps)


def layer_norm(
    x: Float[Array, "T E"],
    weight: Float[Array, " E"],
    bias: Float[Array, " E"] | None,
    num_rows: Int[Array, ""],
    *,
    eps: float,
    dtype: jnp.dtype,
) -> Float[Array, "T E"]:
    """See `xla.layer_norm`."""
    wide = x.astype(jnp.float32)
    normed = norms.layer_norm(wide, weight, bias, num_rows, eps=eps, dtype=written(dtype))
    return normed.astype(dtype)


def head_norm(
    x: Float[Array, "T heads D"],
    weight: Float[Array, "heads D"],
    bias: Float[Array, "heads D"] | None,
    num_tokens: Int[Array, ""],
    *,
    kind: Literal["rms", "layer"],
    whole: bool,
    eps: float,
) -> Float[Array, "T heads D"]:
    """See `xla.head_norm`."""
    if whole:
        weight, bias = weight.reshape(-1), None if bias is None else bias.reshape(-1)
    rows = x.astype(jnp.float32).reshape(-1, weight.shape[-1])
    num_rows = num_tokens * (len(rows) // len(x))
    centred, dtype = kind == "layer", written(x.dtype)
    normed, _ = norms.norm(
        rows, None, weight, bias, num_rows, eps=eps, centred=centred, dtype=dtype
    )
    return normed.astype(x.dtype).reshape(x.shape)


def _added(
    norm_of: Callable[..., Array],
    x: Float[Array, "T E"],
    residual: Float[Array, "T E"],
    *arguments: Any,
    eps: float,
) -> tuple[Float[Array, "T E"], Float[Array, "T E"]]:
    """The norm of x + residual, and this sum, in residual's dtype."""
    total = (x + residual).astype(residual.dtype)
    return norm_of(total, *arguments, eps=eps, dtype=total.dtype), total


def softmax(x: Float[Array, "R V"]) -> Float[Array, "R V"]:
    """See `xla.softmax`."""
    top, sums = softmax_sums(x)
    return in_whole_vectors(jnp.exp, x - top[:, None]) / sums[:, None]


def logsumexp(x: Float[Array, "R V"]) -> Float[Array, "R"]:
    """See `xla.logsumexp`."""
    top, sums = softmax_sums(x)
    return jnp.where(top == jnp.inf, top, top + in_whole_vectors(jnp.log, sums))


def draw(logits: Float[Array, "R V"], inputs: SamplingInputs) -> Int[Array, "R"]:
    """See `sampling.draw.draw`."""
    u = uniforms(inputs.seed, inputs.position)
    filters = (inputs.top_n_sigma, inputs.top_k, inputs.top_p, inputs.min_p)
    return draw_kernel(logits, inputs.temperature, *filters, u)


def add_low_rank(out: Float[Array, "T out"], low: LowRank) -> Float[Array, "T out"]:
    """See `xla.add_low_rank`. Only rows that have an adapter cost anything."""
    # Compiled for engines that take adapters alone.
    from cpu_kernels.low_rank.add_low_rank import add_low_rank as kernel

    a, b, ranks = (low.arrays[name] for name in (A, B, RANKS))
    rows, wide = low.rows, out.astype(jnp.float32)
    sizes = ranks, low.halves, low.layer, rows.order, rows.starts
    return kernel(wide, low.x, a, b, *sizes).astype(out.dtype)
