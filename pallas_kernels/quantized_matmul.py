"""Products with quantised weights: matrices of codes, with a scale for each group of columns."""

import functools
import operator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Shaped

from pallas_kernels.backends import Backend, choose
from pallas_kernels.device import interpreting

INT8, INT4, E4M3 = "int8", "uint8", "float8_e4m3fn"
KINDS = (INT8, INT4, E4M3)
# Rows for which the twin reads codes once for all, instead of writing numbers and reading them.
FEW_ROWS = 8
CONTRACT_LAST = (((1,), (1,)), ((), ()))  # x [T, in] with weight [out, in]


def quantized_matmul(
    x: Shaped[Array, "T in"],
    codes: Shaped[Array, "L out width"],
    scales: Float[Array, "L groups out"],
    minimums: Float[Array, "L groups out"] | None = None,
    *,
    layer: Int[Array, ""] | int,
    group: int,
    dtype: jnp.dtype,
    x_scales: Float[Array, " T"] | None = None,
    backend: Backend = None,
) -> Float[Array, "T out"]:
    """x @ w.T of one layer's w = scale * meaning + minimum, accumulated in float32.

    Args:
        x: numbers; or, with `x_scales`, rows of float8_e4m3fn, to be multiplied by these.
        codes: codes of a stack of layers. int8 and float8_e4m3fn mean themselves. A byte of uint8
            holds two columns, the even one in its low bits, and 0..15 mean -8..7.
        scales: scale of each group of columns, and row.
        minimums: what is added to each number of a group, or None.
        layer: which one.
        group: columns in a group; the last group of a row may be shorter.
        dtype: the result's dtype.
        x_scales: scales of the rows of x, if they are codes, too.
        backend: "mosaic" (Hopper), "xla", several of them, or None.

    Raises:
        ValueError: the arrays do not match, or the backend does not support the call.
    """
    _check(x, codes, scales, minimums, group, x_scales)
    layer = jnp.asarray(layer, jnp.int32)
    name = backend_for(x, codes, group, backend)
    if name == "xla":
        twin: Array = _by_xla(x, codes, scales, minimums, layer, group, dtype, x_scales)
        return twin
    from pallas_kernels.mosaic import quantized_matmul as mosaic

    out = mosaic.multiply(x, codes, scales, minimums, layer, group, interpret=interpreting())
    if scales.shape[1] == 1:
        out = out * _of(scales, layer)
        if minimums is not None:
            out = out + _of_minimums(x, _of(minimums, layer), group)
    done: Array = (out if x_scales is None else out * x_scales[:, None]).astype(dtype)
    return done


@partial(jax.jit, static_argnames=("group", "dtype"))
def _by_xla(
    x: Any,
    codes: Any,
    scales: Any,
    minimums: Any,
    layer: Any,
    group: int,
    dtype: jnp.dtype,
    x_scales: Any,
) -> Float[Array, "T out"]:
    """The twin. For more than a few rows XLA first writes a layer's numbers, then multiplies them.

    Where groups have scales, those numbers are rounded to the dtype of x, which the kernel for GPUs
    does not do.
    """
    x = x if x_scales is None else x.astype(jnp.float32) * x_scales[:, None]
    held, shared = _of(codes, layer), _of(scales, layer) if scales.shape[1] > 1 else None
    # Each byte of 4-bit codes has two columns of one group.
    if len(x) <= FEW_ROWS and (codes.dtype != jnp.uint8 or shared is None or group % 2 == 0):
        out = _row_by_row(x.astype(jnp.float32), held, shared, group)
    else:
        weight = _interleaved(meanings(held))
        if shared is not None:
            weight = weight * _spread(shared, group, x.shape[1])
        out = lax.dot_general(
            x, weight.astype(x.dtype), CONTRACT_LAST, preferred_element_type=jnp.float32
        )
    if shared is None:
        out = out * _of(scales, layer)
    if minimums is not None:
        out = out + _of_minimums(x, _of(minimums, layer), group)
    done: Array = out.astype(dtype)
    return done


def _row_by_row(x: Any, codes: Any, scales: Any, group: int) -> Float[Array, "T out"]:
    """Sums of products, which XLA fuses into one pass over the codes and writes no numbers for."""
    parts = meanings(codes)
    if scales is not None:
        spread = _spread(scales, group // len(parts), parts[0].shape[1])
        parts = [part * spread for part in parts]
    rows = [[row[i :: len(parts)] for i in range(len(parts))] for row in x]
    return jnp.stack(
        [
            functools.reduce(operator.add, map(operator.mul, parts, halves)).sum(-1)
            for halves in rows
        ]
    )


def meanings(codes: Shaped[Array, "out width"]) -> list[Float[Array, "out width"]]:
    """What codes stand for before they are scaled: all of them, or even columns and odd ones."""
    if codes.dtype != jnp.uint8:
        return [codes.astype(jnp.float32)]
    return [(nibbles.astype(jnp.float32) - 8) for nibbles in (codes & 15, codes >> 4)]


def _interleaved(parts: list[Float[Array, "out width"]]) -> Float[Array, "out in"]:
    return parts[0] if len(parts) == 1 else jnp.stack(parts, -1).reshape(len(parts[0]), -1)


def _of(stack: Any, layer: Any) -> Any:
    return lax.dynamic_index_in_dim(stack, layer, keepdims=False)


def _spread(shared: Float[Array, "groups out"], group: int, size: int) -> Float[Array, "out in"]:
    """One number for each column, from those of groups."""
    return jnp.repeat(shared.T, group, axis=1, total_repeat_length=len(shared) * group)[:, :size]


def _of_minimums(x: Any, minimums: Float[Array, "groups out"], group: int) -> Any:
    """What the minimums add: the sum of x over each group, times its minimum."""
    whole = jnp.pad(x, ((0, 0), (0, -x.shape[1] % group)))
    sums = whole.reshape(len(x), -1, group).astype(jnp.float32).sum(-1)
    return lax.dot(sums, minimums, precision=lax.Precision.HIGHEST)


def _check(x: Any, codes: Any, scales: Any, minimums: Any, group: int, x_scales: Any) -> None:
    if codes.dtype.name not in KINDS:
        raise ValueError(f"expected codes of {', '.join(KINDS)}: {codes.dtype=}")
    size = x.shape[-1]
    width = -(-size // 2) if codes.dtype == jnp.uint8 else size
    if x.ndim != 2 or codes.ndim != 3 or codes.shape[2] != width or 0 in (*x.shape, *codes.shape):
        raise ValueError(
            f"expected x [T, in] and codes [L, out, bytes of a row]: {x.shape=} {codes.shape=} "
            f"{codes.dtype=}"
        )
    if codes.dtype == jnp.uint8 and size % 2:
        raise ValueError(f"rows of 4-bit codes fill whole bytes: {x.shape=} {codes.shape=}")
    if group < 1:
        raise ValueError(f"{group=} must be at least 1")
    shape = (codes.shape[0], -(-size // group), codes.shape[1])
    for name, array in (("scales", scales), ("minimums", minimums)):
        if array is not None and (array.shape != shape or array.dtype != jnp.float32):
            raise ValueError(
                f"expected {name} [L, groups, out] = {shape} of float32: {array.shape} of "
                f"{array.dtype}"
            )
    if (x.dtype.name == E4M3) != (x_scales is not None):
        raise ValueError(f"x_scales belong to x of {E4M3} and to no other: {x.dtype=}")
    if x_scales is not None and x_scales.shape != x.shape[:1]:
        raise ValueError(f"expected a scale for each row of x: {x_scales.shape=} {x.shape=}")


def backend_for(x: Any, codes: Any, group: int, backend: Backend = None) -> str:
    """The backend that multiplies on this device; of x and codes only shapes and dtypes are read.

    Raises:
        ValueError: no requested backend supports the call.
    """
    return choose(backend, lambda name: _missing(name, x, codes, group))


def _missing(name: str, x: Any, codes: Any, group: int) -> str | None:
    """Why a backend does not support a call, or None if it does."""
    if name == "xla":
        return None
    if name != "mosaic":
        return "this operation"
    from pallas_kernels.mosaic import quantized_plan

    return quantized_plan.missing(x, codes, group)
