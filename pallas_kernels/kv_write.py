"""Stores a step's keys and values in their slots of the cache (SOSP'23 section 4.3)."""

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from pallas_kernels.backends import Backend, numba_or_xla
from pallas_kernels.checks import check_cache, check_scales


def write_kv(
    kv_cache: Shaped[Array, "L kv N K B D"],
    k: Float[Array, "T K D"],
    v: Float[Array, "T K D"] | None,
    slot_mapping: Int[Array, " T"],
    *,
    layer: int | Int[Array, ""],
    kv_scales: Float[Array, "L kv K"] | None = None,
    backend: Backend = None,
) -> Shaped[Array, "L kv N K B D"]:
    """Writes token t's key and value to slot `slot_mapping[t]` of one layer; returns the cache.

    Slot s is offset `s % B` of block `s // B`. A negative slot writes nothing. The others must be
    distinct. Keys and values are converted to the cache's dtype. For a quantised cache they are
    divided by their scale, clipped to the dtype's range and rounded to its nearest number. A cache
    that is donated, or carried through a scan, is updated in place.

    Args:
        v: None if the cache has keys only, which begin with their values.
        layer: layer of the cache; may be traced.
        kv_scales: the scales of a float8_e4m3fn or int8 cache; None for any other cache.
        backend: "numba" on a CPU, "xla", or None for the better one.

    Raises:
        ValueError: the shapes do not match, or the backend lacks this operation.
    """
    check_cache(kv_cache)
    new: tuple[Array, ...] = (k,) if v is None else (k, v)
    heads, dim = kv_cache.shape[3], kv_cache.shape[5]
    tokens = (*slot_mapping.shape, heads, dim)
    if slot_mapping.ndim != 1 or any(one.shape != tokens for one in new):
        raise ValueError(
            f"expected [T, K, D] for slots [T]: shapes {[one.shape for one in new]} "
            f"{slot_mapping.shape=} {kv_cache.shape=}"
        )
    if len(new) != kv_cache.shape[1]:
        raise ValueError(
            f"values belong to a cache [L, 2, N, K, B, D] and to no other: {kv_cache.shape=} "
            f"v {'is None' if v is None else 'is given'}"
        )
    check_scales(kv_cache, kv_scales)
    if kv_scales is not None:
        new = tuple(_quantize(x, kv_scales[layer, i], kv_cache.dtype) for i, x in enumerate(new))
    new = tuple(one.astype(kv_cache.dtype) for one in new)
    if numba_or_xla(backend, kv_cache.dtype) == "numba":
        from cpu_kernels.kv_write import store

        return store(kv_cache, new[0], new[-1], slot_mapping, layer)
    return _scatter(kv_cache, new, slot_mapping, layer)


def _scatter(
    kv_cache: Shaped[Array, "L kv N K B D"],
    new: Sequence[Shaped[Array, "T K D"]],
    slot_mapping: Int[Array, " T"],
    layer: int | Int[Array, ""],
) -> Shaped[Array, "L kv N K B D"]:
    num_blocks, block_size = kv_cache.shape[2], kv_cache.shape[4]
    block = jnp.where(slot_mapping < 0, num_blocks, slot_mapping // block_size)
    offset = slot_mapping % block_size
    both = jnp.stack(new, 1)
    return kv_cache.at[layer, :, block, :, offset].set(both, mode="drop")


def _quantize(
    new: Float[Array, "T K D"], scales: Float[Array, " K"], dtype: jnp.dtype
) -> Float[Array, "T K D"]:
    """Divides by the scales and clips to the dtype's range; rounds if the dtype is int8."""
    quotient = new.astype(jnp.float32) / scales[:, None]
    if dtype == jnp.int8:
        return jnp.clip(jnp.rint(quotient), -128, 127)
    # A number that is too large would become NaN.
    largest = float(jnp.finfo(dtype).max)  # type: ignore[no-untyped-call]
    return jnp.clip(quotient, -largest, largest)
