"""The same operations by the kernels for a CPU.

The arguments and results are those of `xla.py`.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from cpu_kernels.norms import layer_norm as layer
from cpu_kernels.norms import rms_norm as rms
from cpu_kernels.sampling.draw import draw as draw_kernel
from cpu_kernels.zeros import zeros as zeros
from jax_engine.sampling.draw import uniforms
from jax_engine.sampling.inputs import SamplingInputs


def add_rms_norm(
    x: Float[Array, "T E"],
    residual: Float[Array, "T E"],
    weight: Float[Array, " E"],
    num_rows: Int[Array, ""],
    *,
    eps: float,
) -> tuple[Float[Array, "T E"], Float[Array, "T E"]]:
    """See `xla.add_rms_norm`. Rows that are not wanted cost nothing, and become zeros."""
    return rms.add_rms_norm(x.astype(jnp.float32), residual, weight, num_rows, eps=eps)


def rms_norm(
    x: Float[Array, "T E"],
    weight: Float[Array, " E"],
    num_rows: Int[Array, ""],
    *,
    eps: float,
    dtype: jnp.dtype,
) -> Float[Array, "T E"]:
    """See `xla.rms_norm`."""
    return rms.rms_norm(x.astype(jnp.float32), weight, num_rows, eps=eps, dtype=dtype)


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
    return layer.add_layer_norm(x.astype(jnp.float32), residual, weight, bias, num_rows, eps=eps)


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
    return layer.layer_norm(x.astype(jnp.float32), weight, bias, num_rows, eps=eps, dtype=dtype)


def draw(logits: Float[Array, "R V"], inputs: SamplingInputs) -> Int[Array, "R"]:
    """See `sampling.draw.draw`."""
    u = uniforms(inputs.seed, inputs.position)
    filters = (inputs.top_n_sigma, inputs.top_k, inputs.top_p, inputs.min_p)
    return draw_kernel(logits, inputs.temperature, *filters, u)
