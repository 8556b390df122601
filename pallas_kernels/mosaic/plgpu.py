"""All names of Pallas Mosaic GPU that the kernels use, so that only this file depends on JAX's.

`jax.experimental.pallas.mosaic_gpu` calls itself unstable. Changes for a new version of JAX (0.11.2
and 0.12 are supported) are made here.
"""

import functools
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as _mosaic_gpu

from pallas_kernels.device import pool_threads

# Any: its type annotations are incomplete.
mosaic_gpu: Any = _mosaic_gpu

ACC = mosaic_gpu.ACC
SMEM = mosaic_gpu.SMEM
Barrier = mosaic_gpu.Barrier
RefUnion = mosaic_gpu.RefUnion
barrier_arrive = mosaic_gpu.barrier_arrive
barrier_wait = mosaic_gpu.barrier_wait
commit_smem = mosaic_gpu.commit_smem
copy_gmem_to_smem = mosaic_gpu.copy_gmem_to_smem
copy_smem_to_gmem = mosaic_gpu.copy_smem_to_gmem
set_max_registers = mosaic_gpu.set_max_registers
wait_smem_to_gmem = mosaic_gpu.wait_smem_to_gmem
wgmma = mosaic_gpu.wgmma
wgmma_wait = mosaic_gpu.wgmma_wait
WGMMA = mosaic_gpu.Layout.WGMMA
# The layout in which threads hold four bytes of a row each, and that widens to WGMMA's.
NARROW = mosaic_gpu.Layout.WGMMA_UPCAST_2X
# The layout of one number per row of a WGMMA tile, in the threads that hold the row.
ROWS = mosaic_gpu.Layout.WGMMA.reduce(1)
# And of one number per column.
COLUMNS = mosaic_gpu.Layout.WGMMA.reduce(0)


def kernel(
    body: Callable[..., None], *, interpret: bool, num_threads: int | None = None, **how: Any
) -> Callable[..., Any]:
    """Makes a function of arrays from a kernel's body; interpreted on the CPU, or compiled.

    Raises:
        ValueError: XLA has fewer threads than the kernel to interpret has warpgroups
            (`num_threads`). A warpgroup that waits holds a thread, so the one that it waits for
            might never run.
    """
    if interpret and num_threads is not None and num_threads > pool_threads():
        raise ValueError(
            f"interpreting this Mosaic kernel takes {num_threads} threads of XLA, which has "
            f"{pool_threads()} in this process: set the environment variable NPROC=16 before JAX "
            "starts (PJRT_NPROC, where it is set, comes before NPROC)"
        )
    run: Callable[..., Any] = mosaic_gpu.kernel(
        body,
        compiler_params=mosaic_gpu.CompilerParams(approx_math=True, reduction_scratch_bytes=0),
        interpret=mosaic_gpu.InterpretGPUParams() if interpret else None,
        num_threads=num_threads,
        **how,
    )
    return run


def swizzle_bytes(row_bytes: int) -> int:
    """The widest swizzle, in bytes, that divides a row; 0 if none does."""
    return next((size for size in (128, 64, 32) if row_bytes % size == 0), 0)


def tiles(shape: tuple[int, ...], dtype: Any, columns: int | None = None) -> Any:
    """Shared memory in the layout that WGMMA reads: tiles of 8 rows, swizzled.

    Args:
        columns: columns of a tile; None: as many as can be. Both operands of a product need as many
            bytes.
    """
    itemsize = jnp.dtype(dtype).itemsize
    size = swizzle_bytes((columns or shape[-1]) * itemsize)
    order = (mosaic_gpu.TilingTransform((8, size // itemsize)), mosaic_gpu.SwizzleTransform(size))
    return SMEM(shape, dtype, transforms=order)


def full(shape: tuple[int, ...], value: float) -> jax.Array:
    """A float32 WGMMA tile, or one number per row of such a tile, filled with a value."""
    filled: jax.Array = mosaic_gpu.layout_cast(
        jnp.full(shape, value, jnp.float32), WGMMA if len(shape) == 2 else ROWS
    )
    return filled


def indices(shape: tuple[int, ...], axis: int) -> jax.Array:
    """Each element's row (axis 0) or column (axis 1) in a WGMMA tile, or one row index per row."""
    layout = WGMMA if len(shape) == 2 else ROWS
    made: jax.Array = mosaic_gpu.broadcasted_iota(jnp.int32, shape, axis, layout=layout)
    return made


def load_rows(ref: Any) -> jax.Array:
    """Loads one number per row of a WGMMA tile."""
    loaded: jax.Array = mosaic_gpu.load(ref, layout=ROWS, optimized=False)
    return loaded


def load_columns(ref: Any) -> jax.Array:
    """Loads one number per column of a WGMMA tile."""
    loaded: jax.Array = mosaic_gpu.load(ref, layout=COLUMNS, optimized=False)
    return loaded


def load_tile(ref: Any) -> jax.Array:
    """Loads a WGMMA tile."""
    loaded: jax.Array = mosaic_gpu.layout_cast(ref[...], WGMMA)
    return loaded


def load_codes(ref: Any) -> jax.Array:
    """Loads a tile of bytes from shared memory, to be widened into a left operand."""
    loaded: jax.Array = ref[...]
    return loaded


def left_operand(codes: jax.Array) -> jax.Array:
    """Bytes that `load_codes` loaded, as numbers of bfloat16 in a WGMMA tile. This is exact."""
    if codes.dtype == jnp.float8_e4m3fn:
        codes = codes.astype(jnp.float32)  # Hopper has no shorter way
    widened: jax.Array = mosaic_gpu.layout_cast(codes.astype(jnp.bfloat16), WGMMA)
    return widened


def load_vectors(ref: Any, size: int) -> jax.Array:
    """Loads a row of numbers, of which each thread holds vectors of so many."""
    layout = mosaic_gpu.Layout.WG_STRIDED(ref.shape, vec_size=size)
    loaded: jax.Array = mosaic_gpu.layout_cast(ref[...], layout)
    return loaded


def semaphore() -> Any:
    """A counter in global memory, for each thread block, that other devices may add to."""
    return mosaic_gpu.SemaphoreType.REGULAR


def on_device(ref: Any, rank: int) -> Any:
    """The same array in the memory of another device of the mesh."""
    return mosaic_gpu.remote_ref(ref, jnp.int32(rank))


def tell_all(counter: Any, size: int) -> None:
    """Adds one to this semaphore on each of `size` devices, behind all that was written before."""
    signal = mosaic_gpu.SemaphoreSignal
    mosaic_gpu.semaphore_signal_parallel(
        *(signal(counter, device_id=jnp.int32(rank)) for rank in range(size))
    )


def wait_for(counter: Any, count: int) -> None:
    """Waits until this device's semaphore was added to so often."""
    pl.semaphore_wait(counter, count, decrement=False)


def across(values: jax.Array, columns: int) -> jax.Array:
    """Broadcasts one number per row to all columns of the row."""
    return lax.broadcast_in_dim(values, (*values.shape, columns), (0,))


def down(values: jax.Array, rows: int) -> jax.Array:
    """Broadcasts one number per column to all rows of the column."""
    return lax.broadcast_in_dim(values, (rows, *values.shape), (1,))


def product(a: Any, b: Any, started: Callable[[], None] | None = None) -> jax.Array:
    """a @ b in float32; a and b are in shared memory. `started` is called while it is computed."""

    def run(acc: Any) -> jax.Array:
        mosaic_gpu.wgmma(acc, a, b)
        if started is not None:
            started()
        result: jax.Array = acc[...]
        return result

    made: jax.Array = pl.run_scoped(run, mosaic_gpu.ACC((a.shape[0], b.shape[1]), jnp.float32))
    return made


def sum_of_products(left: list[Any], right: list[Any], staging: Any | None) -> jax.Array:
    """The sum of a @ b in float32; each b is in shared memory, each a there or in registers.

    The interpreter needs an a that is in registers in shared memory: in `staging`. The compiled
    kernel passes None.
    """
    if staging is not None:
        made = [_staged_product(a, b, staging) for a, b in zip(left, right, strict=True)]
        return functools.reduce(operator.add, made)

    def run(acc: Any) -> jax.Array:
        for a, b in zip(left, right, strict=True):
            mosaic_gpu.wgmma(acc, a, b)
        result: jax.Array = acc[...]
        return result

    shape = (left[0].shape[0], right[0].shape[1])
    added: jax.Array = pl.run_scoped(run, mosaic_gpu.ACC(shape, jnp.float32))
    return added


def _staged_product(a: jax.Array, b: Any, staging: Any) -> jax.Array:
    staging[...] = a
    commit_smem()
    return product(staging, b)


def add_product(total: jax.Array, a: jax.Array, b: Any, staging: Any | None) -> jax.Array:
    """total + a @ b, with a in registers and b in shared memory.

    The interpreter needs a in shared memory (`staging`) and cannot start from a total. The
    compiled kernel passes None as `staging`.
    """
    if staging is None:

        def run(acc: Any) -> None:
            mosaic_gpu.wgmma(acc, a, b)

        added: jax.Array = pl.run_state(run)(mosaic_gpu.ACC.init(total))
        return added
    staging[...] = a
    commit_smem()
    return total + product(staging, b)


def div(a: jax.Array, b: int) -> jax.Array:
    """a // b of integers that are not negative."""
    return lax.div(a, jnp.int32(b))


def rem(a: jax.Array, b: int) -> jax.Array:
    """a % b of integers that are not negative."""
    return lax.rem(a, jnp.int32(b))


def transposed(values: jax.Array) -> jax.Array:
    """A WGMMA tile held so that its transpose can be stored."""
    moved: jax.Array = mosaic_gpu.layout_cast(values, mosaic_gpu.Layout.WGMMA_TRANSPOSED)
    return moved
