"""Activation functions of feed-forward networks, and the gates made of them."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jax_engine.layer_spec import Activation

# gpt-oss bounds the numbers before its gate, and has another slope than silu.
LIMIT, SLOPE = 7.0, 1.702


def activate(x: Float[Array, "*shape"], activation: Activation) -> Float[Array, "*shape"]:
    """The activation of each number."""
    return _FUNCTIONS[activation](x)


def gate(
    gates: Float[Array, "*shape"], up: Float[Array, "*shape"], activation: Activation
) -> Float[Array, "*shape"]:
    """activation(gates) * up. For "clipped_swiglu" both are bounded, and up grows by one."""
    if activation == "clipped_swiglu":
        gates, up = jnp.minimum(gates, LIMIT), jnp.clip(up, -LIMIT, LIMIT) + 1
    return activate(gates, activation) * up


def _gelu(x: Array) -> Array:
    return jax.nn.gelu(x, approximate=False)


def _gelu_tanh(x: Array) -> Array:
    return jax.nn.gelu(x, approximate=True)


def _relu2(x: Array) -> Array:
    return jnp.square(jax.nn.relu(x))


def _steep_silu(x: Array) -> Array:
    return x * jax.nn.sigmoid(SLOPE * x)


_FUNCTIONS: dict[Activation, Callable[[Array], Array]] = {
    "silu": jax.nn.silu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "relu": jax.nn.relu,
    "relu2": _relu2,
    "clipped_swiglu": _steep_silu,
}
