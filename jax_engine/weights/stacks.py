"""Stacks of matrices that a kernel receives whole, with the index of a layer."""

import jax.numpy as jnp
from jaxtyping import Array, Int

from jax_engine.weights.format import Matrix, Weight


def index_of(layer: Int[Array, ""] | None) -> Int[Array, ""]:
    """A layer's index in its stack; a single matrix is the first of one."""
    return jnp.zeros((), jnp.int32) if layer is None else layer


def one_after_another(
    weight: Weight, layer: Int[Array, ""] | None
) -> tuple[Weight, Int[Array, ""]]:
    """A stack of all matrices of all layers, and the number of the layer's first one in it."""
    *stack, each, rows, size = weight.matrix.shape
    axes = len(stack) + 1
    arrays = {name: held.reshape(-1, *held.shape[axes:]) for name, held in weight.arrays.items()}
    count = len(next(iter(arrays.values())))
    matrix = weight.matrix._replace(shape=(count, rows, size))
    return Weight(arrays, matrix=matrix, format=weight.format), index_of(layer) * each


def parts_of(matrix: Matrix) -> int:
    """Number of matrices whose panels alternate: gate and up."""
    return 2 if matrix.gated else 1
