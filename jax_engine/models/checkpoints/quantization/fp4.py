"""FP4: codes in E2M1, two a byte, the first one in the low nibble. MXFP4 and NVFP4.

    MXFP4   uint8[N, K / 32]   E8M0 scales, powers of two
    NVFP4   E4M3[N, K / 16]    scales that are divided by, or multiplied with, one for the matrix

gpt-oss has MXFP4 for its experts: `X_blocks` [E, N, K / 32, 16] and `X_scales` [E, N, K / 32] in
place of `X` [E, K, N], as transformers has them. compressed-tensors has both.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np

from jax_engine.models.checkpoints.quantization.fp8 import in_float32
from jax_engine.models.checkpoints.quantization.matrices import E2M1, Grouped, unpack_stream
from jax_engine.models.checkpoints.quantization.method import Method, Parts, settings

BLOCKS, SCALES, SCALE = "_blocks", "_scales", ".weight_scale"
MX_GROUP, NV_GROUP = 32, 16
ONE: tuple[tuple[int | None, ...], ...] = ((), (1,))


class Fields(msgspec.Struct, frozen=True):
    """quantization_config of gpt-oss; which modules are left out shows in the tensors."""

    modules_to_not_convert: list[str] | None = None


def method(raw: Mapping[str, Any]) -> Method:
    """gpt-oss's experts. Raises ConfigError."""
    settings(raw, Fields)
    return Method((BLOCKS, SCALES), experts, shown="", turned=lambda module: True)


def experts(parts: Parts) -> list[Grouped]:
    """The matrix of each expert. Raises WeightsError."""
    sizes = parts.expect(BLOCKS, ("U8",), (None, None, None, MX_GROUP // 2))
    parts.expect(SCALES, ("U8", "F8_E8M0"), sizes[:3])

    def of(expert: int) -> Grouped:
        return _matrix(
            (sizes[1], sizes[2] * MX_GROUP),
            MX_GROUP,
            lambda: parts.raw(BLOCKS)[expert].reshape(sizes[1], -1),
            lambda: in_float32(parts.raw(SCALES)[expert]),
            lambda: _are_halves(parts.raw(SCALES)[expert]),
        )

    return [of(expert) for expert in range(sizes[0])]


def mxfp4(parts: Parts, end: str) -> Grouped:
    """A matrix of MXFP4 whose codes have this end of a name. Raises WeightsError."""
    shape = _checked(parts, end, MX_GROUP, ("U8", "F8_E8M0"))
    return _matrix(
        shape,
        MX_GROUP,
        lambda: parts.raw(end),
        lambda: in_float32(parts.raw(SCALE)),
        lambda: _are_halves(parts.raw(SCALE)),
    )


def nvfp4(parts: Parts, end: str, whole: str, *, divisor: bool) -> Grouped:
    """A matrix of NVFP4. Raises WeightsError.

    Args:
        end: end of the name of the tensor of codes.
        whole: end of the name of the matrix's one scale.
        divisor: whether scales are divided by it.
    """
    shape = _checked(parts, end, NV_GROUP, ("F8_E4M3",))
    parts.expect(whole, ("F32",), *ONE)

    def scales() -> np.ndarray:
        each, of_matrix = parts.floats(SCALE), parts.floats(whole).reshape(())
        with np.errstate(all="ignore"):
            found: np.ndarray = each / of_matrix if divisor else each * of_matrix
        return found

    return _matrix(shape, NV_GROUP, lambda: parts.raw(end), scales, lambda: False)


def _checked(parts: Parts, end: str, group: int, dtypes: tuple[str, ...]) -> tuple[int, int]:
    num_outputs, half = parts.expect(end, ("U8",), (None, None))
    if 2 * half % group:
        raise parts.error(end, f"a multiple of {group} codes in a row", 2 * half)
    parts.expect(SCALE, dtypes, (num_outputs, 2 * half // group))
    return num_outputs, 2 * half


def _matrix(
    shape: tuple[int, int],
    group: int,
    packed: Callable[[], np.ndarray],
    scales: Callable[[], np.ndarray],
    halves: Callable[[], bool],
) -> Grouped:
    codes_into = functools.partial(_codes_into, packed)
    return Grouped(shape, E2M1, group, codes_into, scales, halves=halves)


def _are_halves(exponents: np.ndarray) -> bool:
    """Whether all powers of two are float16 numbers, from 2^-24 to 2^15."""
    raw = exponents.view(np.uint8)
    return bool(raw.min() >= 127 - 24 and raw.max() <= 127 + 15)


def _codes_into(packed: Callable[[], np.ndarray], out: np.ndarray) -> None:
    unpack_stream(packed(), 4, out)
