"""Copies whole blocks, for copy-on-write and swapping (SOSP'23 sections 4.4, 4.5)."""

import jax.numpy as jnp
from jaxtyping import Array, Int, Shaped

from pallas_kernels.backends import Backend, numba_or_xla
from pallas_kernels.checks import check_cache


def copy_blocks(
    kv_cache: Shaped[Array, "L kv N K B D"],
    src: Int[Array, " M"],
    dst: Int[Array, " M"],
    *,
    backend: Backend = None,
) -> Shaped[Array, "L kv N K B D"]:
    """Copies block src[i] onto block dst[i] in all layers; returns the cache.

    All sources are read before any destination is written. A negative destination is padding and
    copies nothing. The others must be distinct. A donated cache is updated in place.

    Raises:
        ValueError: the shapes do not match, or the backend lacks this operation.
    """
    if src.ndim != 1 or src.shape != dst.shape:
        raise ValueError(f"expected two lists of M blocks: {src.shape=} {dst.shape=}")
    return _put(kv_cache, dst, _get(kv_cache, src, backend), backend)


def gather_blocks(
    kv_cache: Shaped[Array, "L kv N K B D"], ids: Int[Array, " M"], *, backend: Backend = None
) -> Shaped[Array, "M L kv K B D"]:
    """The contents of blocks, each in one piece, for swapping out.

    A negative id is padding, and the content in its place is arbitrary.

    Raises:
        ValueError: the shapes do not match, or the backend lacks this operation.
    """
    if ids.ndim != 1:
        raise ValueError(f"expected a list of M blocks: {ids.shape=}")
    return _get(kv_cache, ids, backend)


def scatter_blocks(
    kv_cache: Shaped[Array, "L kv N K B D"],
    ids: Int[Array, " M"],
    data: Shaped[Array, "M L kv K B D"],
    *,
    backend: Backend = None,
) -> Shaped[Array, "L kv N K B D"]:
    """Writes data[i] to block ids[i], for swapping in; returns the cache.

    It is the inverse of `gather_blocks`. A negative id is padding and writes nothing. The others
    must be distinct. A donated cache is updated in place.

    Raises:
        ValueError: the shapes do not match, or the backend lacks this operation.
    """
    block = kv_cache.shape[:2] + kv_cache.shape[3:]
    if ids.ndim != 1 or data.shape != ids.shape + block:
        raise ValueError(
            f"expected data [M, L, {block[1]}, K, B, D] for M blocks: {data.shape=} {ids.shape=} "
            f"{kv_cache.shape=}"
        )
    return _put(kv_cache, ids, data.astype(kv_cache.dtype), backend)


def _get(
    kv_cache: Shaped[Array, "L kv N K B D"], ids: Int[Array, " M"], backend: Backend
) -> Shaped[Array, "M L kv K B D"]:
    check_cache(kv_cache)
    if numba_or_xla(backend, kv_cache.dtype) == "numba":
        from cpu_kernels.block_copy import read_blocks

        return read_blocks(kv_cache, ids)
    taken = jnp.take(kv_cache, jnp.maximum(ids, 0), axis=2, mode="clip")
    return jnp.moveaxis(taken, 2, 0)


def _put(
    kv_cache: Shaped[Array, "L kv N K B D"],
    ids: Int[Array, " M"],
    data: Shaped[Array, "M L kv K B D"],
    backend: Backend,
) -> Shaped[Array, "L kv N K B D"]:
    if numba_or_xla(backend, kv_cache.dtype) == "numba":
        from cpu_kernels.block_copy import write_blocks

        return write_blocks(kv_cache, ids, data)
    # Padding goes to index N, which is out of range and dropped. Index -1 would be the last block.
    place = jnp.where(ids < 0, kv_cache.shape[2], ids)
    return kv_cache.at[:, :, place].set(jnp.moveaxis(data, 0, 2), mode="drop")
