"""Operations that XLA compiles for every device."""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jax_engine.operations.device import this_device
from jax_engine.operations.equal_bits import apart, in_whole_vectors, row_sums
from jax_engine.sampling.draw import draw as draw
from jax_engine.weights.low_rank import LowRank, dense_of

ROWS_AT_ONCE = 16  # whose A and B are gathered: a few MB
ROWS_OF_X = 2  # the fewest that XLA multiplies on a CPU as it does more
CONTRACT_LAST = (((1,), (1,)), ((), ()))  # x [T, in] with a matrix [out, in]


def add_rms_norm(
    x: Float[Array, "T E"],
    residual: Float[Array, "T E"],
    weight: Float[Array, " E"],
    num_rows: Int[Array, ""],
    *,
    eps: float,
) -> tuple[Float[Array, "T E"], Float[Array, "T E"]]:
    """s / rms(s) * weight and s, where s = x + residual, in residual's dtype.

    Args:
        x: what the part before returned.
        weight: the scale, in float32.
        num_rows: how many rows are wanted. XLA computes all of them.
    """
    residual = (x + residual).astype(residual.dtype)
    return rms_norm(residual, weight, num_rows, eps=eps, dtype=residual.dtype), residual


def rms_norm(
    x: Float[Array, "T E"],
    weight: Float[Array, " E"],
    num_rows: Int[Array, ""],
    *,
    eps: float,
    dtype: jnp.dtype,
) -> Float[Array, "T E"]:
    """x / rms(x) * weight in `dtype`, computed in float32."""
    del num_rows
    return (normalised(x, kind="rms", eps=eps) * weight).astype(dtype)


def add_layer_norm(
    x: Float[Array, "T E"],
    residual: Float[Array, "T E"],
    weight: Float[Array, " E"],
    bias: Float[Array, " E"] | None,
    num_rows: Int[Array, ""],
    *,
    eps: float,
) -> tuple[Float[Array, "T E"], Float[Array, "T E"]]:
    """The layer norm of s = x + residual, and s; see `add_rms_norm`."""
    residual = (x + residual).astype(residual.dtype)
    normed = layer_norm(residual, weight, bias, num_rows, eps=eps, dtype=residual.dtype)
    return normed, residual


def layer_norm(
    x: Float[Array, "T E"],
    weight: Float[Array, " E"],
    bias: Float[Array, " E"] | None,
    num_rows: Int[Array, ""],
    *,
    eps: float,
    dtype: jnp.dtype,
) -> Float[Array, "T E"]:
    """(x - mean(x)) / deviation(x) * weight + bias in `dtype`, computed in float32."""
    del num_rows
    return _scaled(normalised(x, kind="layer", eps=eps), weight, bias).astype(dtype)


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
    """The norm of each head, or one over all heads of a token, in x's dtype."""
    del num_tokens
    rows = x.reshape(len(x), -1) if whole else x
    normed = normalised(rows, kind=kind, eps=eps).reshape(x.shape)
    return _scaled(normed, weight, bias).astype(x.dtype)


def softmax(x: Float[Array, "R V"]) -> Float[Array, "R V"]:
    """The softmax of each row."""
    weights = apart(in_whole_vectors(jnp.exp, apart(x - jnp.max(x, axis=-1, keepdims=True))))
    return weights / row_sums(weights)


def logsumexp(x: Float[Array, "R V"]) -> Float[Array, "R"]:
    """The logarithm of each row's sum of exp(x)."""
    top = jnp.max(x, axis=1, keepdims=True)
    top = jnp.where(jnp.isfinite(top), top, 0.0)
    sums = row_sums(in_whole_vectors(jnp.exp, apart(x - top)))
    return (top + in_whole_vectors(jnp.log, sums))[:, 0]


def add_low_rank(out: Float[Array, "T out"], low: LowRank) -> Float[Array, "T out"]:
    """out + B (A x), in float32, of the rows that have an adapter; rounded to out's dtype.

    Slot by slot, with all rows: a row's sums have the same order in any slot. On a CPU a slot
    without rows is left out.
    """
    if low.layout.choices:
        return _add_low_rank_by_rows(out, low)
    rows, starts = len(out), low.rows.starts
    x = jnp.pad(low.x, ((0, max(0, ROWS_OF_X - rows)), (0, 0))).astype(jnp.float32)

    def one(out: Array, slot: tuple[Array, Array, Array]) -> tuple[Array, None]:
        number, a, b = slot

        def added() -> Array:
            wide = b.astype(jnp.float32)
            shrunk = _exact_product(x, a.astype(jnp.float32))
            both = _exact_product(shrunk, wide[:, :-1])[:rows]
            both = out.astype(jnp.float32) + (both + wide[:, -1])
            own = (low.rows.slot == number)[:, None]
            return jnp.where(own, both.astype(out.dtype), out)

        if this_device().branches_wait:
            return added(), None
        has_rows = starts[number + 1] > starts[number]
        return jax.lax.cond(has_rows, added, lambda: out), None

    numbers = jnp.arange(1, low.layout.slots + 1, dtype=jnp.int32)
    found: Array = jax.lax.scan(one, out, (numbers, *dense_of(low)))[0]
    return found


def _add_low_rank_by_rows(out: Float[Array, "T out"], low: LowRank) -> Float[Array, "T out"]:
    """The same where rows have hundreds of slots: some rows at a time, each with its own A and B.

    On a CPU rows without an adapter are left out, if there are `ROWS_AT_ONCE` of them. A loop that
    runs once would become a part of what is around it, where sums may have another order.
    """
    rows, slots = len(out), low.rows.slot
    least = 2 if this_device().bits_by_shape else 1
    missing = max(-(-rows // ROWS_AT_ONCE), least) * ROWS_AT_ONCE - rows

    def in_chunks(values: Array) -> Array:
        padded = jnp.pad(values, [(0, missing)] + [(0, 0)] * (values.ndim - 1))
        return padded.reshape(-1, ROWS_AT_ONCE, *values.shape[1:])

    def one(chunk: tuple[Array, Array, Array]) -> Array:
        x, slot, out = chunk

        def added() -> Array:
            a, b = (one.astype(jnp.float32) for one in dense_of(low, jnp.maximum(slot - 1, 0)))
            shrunk = _each_product(x.astype(jnp.float32), a)
            both = out.astype(jnp.float32) + (_each_product(shrunk, b[..., :-1]) + b[..., -1])
            return jnp.where((slot > 0)[:, None], both.astype(out.dtype), out)

        if this_device().branches_wait:
            return added()
        found: Array = jax.lax.cond((slot > 0).any(), added, lambda: out)
        return found

    found: Array = jax.lax.map(one, (in_chunks(low.x), in_chunks(slots), in_chunks(out)))
    return found.reshape(-1, out.shape[1])[:rows]


def _each_product(
    x: Float[Array, "T in"], matrices: Float[Array, "T out in"]
) -> Float[Array, "T out"]:
    """Each row by its own matrix, in float32."""
    out: Array = jax.lax.dot_general(
        x,
        matrices,
        (((1,), (2,)), ((0,), (0,))),
        precision=jax.lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )
    found: Array = jax.lax.optimization_barrier(out)
    return found


def _exact_product(
    x: Float[Array, "T in"], matrix: Float[Array, "out in"]
) -> Float[Array, "T out"]:
    """In float32. On a CPU a matrix of few rows is filled up: see `IndexedDense`."""
    missing = max(0, 16 - len(matrix))
    held = jnp.pad(matrix, ((0, missing), (0, 0)))
    out: Array = jax.lax.dot_general(
        x,
        held,
        CONTRACT_LAST,
        precision=jax.lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )
    found: Array = jax.lax.optimization_barrier(out)[:, : len(matrix)]
    return found


def normalised(
    x: Float[Array, "*shape"],
    *,
    kind: Literal["rms", "layer"],
    eps: float,
) -> Float[Array, "*shape"]:
    """Rows divided by their root mean square, in float32; of kind "layer" after their mean is 0."""
    wide, size = x.astype(jnp.float32), x.shape[-1]
    if kind == "layer":
        wide = apart(wide - apart(row_sums(wide) / size))
    mean = apart(row_sums(jnp.square(wide)) / size)
    return wide * jax.lax.rsqrt(apart(mean + eps))


def _scaled(
    x: Float[Array, "*shape"], weight: Float[Array, "..."], bias: Float[Array, "..."] | None
) -> Float[Array, "*shape"]:
    return x * weight if bias is None else apart(x * weight) + bias
