"""Everything that the kernels use of Pallas and its Triton dialect.

Kernels annotate references as arrays; only this file depends on the difference.
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

# JAX has deprecated Triton under Pallas, and warns whenever such a kernel is compiled. Nothing
# else in JAX compiles Pallas kernels for Ampere and Ada, so a user cannot act on the warning.
warnings.filterwarnings(
    "ignore", message="The Pallas Triton backend is deprecated", category=DeprecationWarning
)

# Smallest side of a matrix product on a tensor core.
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
        program: the kernel; called with references to the arguments and then to the result.
        arguments: trees of arrays.
        result: a tree of arrays or of their shapes.
        name: the name that a profiler shows.
        grid: lengths of the grid's axes.
        num_warps: warps of a program.
        num_stages: loads in flight in a loop, including the current one.
        interpret: run in the interpreter, on the CPU.
        in_place: write the result to the memory of the first argument, whose values it starts with.
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
    """Shape and dtype of a result's array."""
    return jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]


def load(place: Any, mask: Array | None = None, other: Any = None) -> Array:
    """Loads from `array.at[...]`; `other` where the mask is false."""
    return jnp.asarray(plt.load(place, mask=mask, other=other))


def store(place: Any, value: Array, mask: Array | None = None) -> None:
    """Stores a value to `array.at[...]` where the mask is true."""
    plt.store(place, value, mask=mask)


def dot(a: Array, b: Array, *, transpose: bool = False) -> Array:
    """a @ b, or a @ b.T, in float32.

    The default precision of Triton would round float32 to the 10 bits of tf32.
    """
    result: Array = plt.dot(a, b, trans_b=transpose, precision=lax.Precision.HIGHEST)
    return result
