"""A weight format that records what its products get: sums of x^T x, in the compiled function.

A function that is traced inside `recording()` finds the sums there, and returns them as results.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from contextvars import ContextVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jax_engine.weights.dense import Dense
from jax_engine.weights.format import Weight

Sums = dict[str, Array]
_sums: ContextVar[Sums | None] = ContextVar("sums", default=None)


@contextlib.contextmanager
def recording() -> Iterator[Sums]:
    """Collects what `Recorded` products add, by their names."""
    found: Sums = {}
    token = _sums.set(found)
    try:
        yield found
    finally:
        _sums.reset(token)


@dataclasses.dataclass(frozen=True)
class Recorded(Dense):
    """`Dense` whose inputs are recorded.

    Attributes:
        name: of the parameter.
    """

    name: str = ""

    def matmul(
        self,
        x: Float[Array, "T in"],
        weight: Weight,
        layer: Int[Array, ""] | None,
        num_rows: Int[Array, ""] | None,
        *,
        out_dtype: jnp.dtype,
    ) -> Float[Array, "T out"]:
        sums = _sums.get()
        if sums is not None:
            wide = x.astype(jnp.float32)
            sums[self.name] = jnp.matmul(wide.T, wide, precision=jax.lax.Precision.HIGHEST)
        return super().matmul(x, weight, layer, num_rows, out_dtype=out_dtype)
