"""All that the kernels use of Pallas and its Triton dialect.

In a kernel arrays stand for references to them, and only here is it seen that they are not.
"""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt
from jaxtyping import Array

# JAX has deprecated Triton under Pallas, and says so whenever such a kernel is compiled. Nothing
# else in JAX compiles Pallas kernels for Ampere and Ada, and a user can do nothing about it.
warnings.filterwarnings(
    "ignore", message="The Pallas Triton backend is deprecated", category=DeprecationWarning
)

# Smallest side of a tensor core's matrix product.
SMALLEST = 16

next_power_of_two = pl.next_power_of_2
program_id = pl.program_id
when = pl.when


def launch(
    program: Callable[..., None],
    arguments: tuple[Any, ...],
    result: Any,
    *,
    name: str,
    grid: tuple[int, ...],
    num_warps: int,
    num_stages: int,
    interpret: bool,
    in_place: bool = False,
) -> Any:
    """Run one program for each point of the grid; the first axis varies fastest.

    Args:
        program: called with the arguments' references, and one more for the result's.
        arguments: trees of arrays.
        result: a tree of arrays or of their shapes.
        name: what a profiler shows.
        grid: its axes' lengths.
        num_warps: warps of a program.
        num_stages: loads in flight in a loop, the current one included.
        interpret: run on the CPU, step by step.
        in_place: the result begins as the first argument, in the same memory.
    """
    shapes = jax.tree.map(lambda x: shape_of(x.shape, x.dtype), result)
    first = range(len(jax.tree.leaves(arguments[0]))) if in_place else ()
    call = pl.pallas_call(
        program,
        grid=grid,
        # In a tuple, or Pallas would take the fields of a named tuple for several results.
        out_shape=(shapes,),
        input_output_aliases={i: i for i in first},
        compiler_params=plt.CompilerParams(num_warps=num_warps, num_stages=num_stages),
        interpret=interpret,
        name=name,
    )
    return call(*arguments)[0]


def shape_of(shape: tuple[int, ...], dtype: Any) -> Any:
    """Stands for an array of a result that is to be made."""
    return jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]


def load(place: Any, mask: Array | None = None, other: Any = None) -> Array:
    """What lies at `array.at[...]`; `other` where masked."""
    return jnp.asarray(plt.load(place, mask=mask, other=other))


def store(place: Any, value: Array, mask: Array | None = None) -> None:
    """Put a value at `array.at[...]`, where not masked."""
    plt.store(place, value, mask=mask)


def dot(a: Array, b: Array, *, transpose: bool = False) -> Array:
    """a @ b, or a @ b.T, in float32.

    The default precision of Triton would round float32 to the 10 bits of tf32.
    """
    result: Array = plt.dot(a, b, trans_b=transpose, precision=lax.Precision.HIGHEST)
    return result
