"""Cases of `batch_invariant`: products of a layer of Llama-3.1-8B, norms, and sums of logits."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import lax

from pallas_kernels import batch_invariant
from pallas_kernels.aot.compiling import Program, array
from pallas_kernels.aot.hlo import watch
from pallas_kernels.aot.targets import Target

LAYERS = 4
# (out, in): columns in parts, columns in one, and a number of columns that is no multiple of a step
MATRICES = {"down": (4096, 14336), "gate-up": (28672, 4096), "odd": (576, 1000)}
EPS = 1e-5
MANY = 256


def invariant_cases(target: Target) -> dict[str, Callable[[], Program]]:
    """Products by dtype, matrix and rows; the others by rows. One row is alike to many.

    AMD's compiler makes other kernels of a product and of the logits' sum for one row. So the
    engine offers none of them there.
    """
    if "triton" not in target.backends or target.platform != "cuda":
        return {}
    cases: dict[str, partial[Program]] = {
        f"invariant_matmul/triton/{dtype}-{name}-{rows}": partial(_product, dtype, name, rows)
        for dtype in ("bfloat16", "float32")
        for name in MATRICES
        for rows in (1, MANY)
    }
    for rows in (1, MANY):
        cases[f"invariant_norm/triton/{rows}"] = partial(_norm, rows)
        cases[f"invariant_logsumexp/triton/{rows}"] = partial(_logsumexp, rows)
    found: dict[str, Callable[[], Program]] = {
        name: partial(_alike, case) if case.args[-1] == 1 else case for name, case in cases.items()
    }
    return found


def _alike(case: partial[Program]) -> Program:
    """The case, and beside it the same one with many rows."""
    *others, _ = case.args
    return replace(case(), alike=case.func(*others, MANY))


def _product(dtype: str, name: str, rows: int) -> Program:
    """Over the layers of a stack, as in a model: no layer may be copied out of it."""
    out, size = MATRICES[name]
    stack = array((LAYERS, out, size), dtype)

    def multiply(x: Any, stack: Any) -> Any:
        def layer(total: Any, number: Any) -> tuple[Any, None]:
            product = batch_invariant.matmul(x, stack, number, dtype=x.dtype)
            return total + product, None

        start = jnp.zeros((rows, out), dtype)
        return lax.scan(layer, start, jnp.arange(LAYERS, dtype=jnp.int32))[0]

    arguments = (array((rows, size), dtype), stack)
    return Program(multiply, arguments, watched=watch(None, [stack.shape]))


def _norm(rows: int) -> Program:
    x = array((rows, 4096), jnp.bfloat16)
    weight = array((1, 4096), jnp.float32)

    def norm(x: Any, residual: Any, weight: Any, bias: Any) -> Any:
        return batch_invariant.norm(
            x, weight, bias, residual=residual, kind="layer", eps=EPS, dtype=x.dtype
        )

    return Program(norm, (x, x, weight, weight))


def _logsumexp(rows: int) -> Program:
    return Program(batch_invariant.logsumexp, (array((rows, 128256), jnp.float32),))
