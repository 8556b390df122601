"""What a kernel's result may be: the oracle's, give or take what rounding explains."""

from dataclasses import replace
from typing import Any

import numpy as np

import reference.attention
from tests.kernels.cases import Case

# Half of the distance between neighbouring numbers, relative to them.
UNIT_ROUNDOFF = {"float32": 2**-24, "bfloat16": 2**-8, "float16": 2**-11}
# Both sides add up some hundred products of numbers of order 1, in float32 and different orders.
FLOAT32_SUMS = 1e-5

Result = tuple[np.ndarray, np.ndarray | None]


def oracle(case: Case, options: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """The reference's result and log-sum-exp, rounded to float32."""
    kv_cache = case.kv_cache
    if case.kv_scales is None:
        kv_cache = kv_cache.astype(np.float32)
    return reference.attention.paged_attention(
        case.q.astype(np.float32),
        kv_cache,
        case.block_tables,
        case.context_lens,
        case.query_start_loc,
        layer=case.layer,
        scale=case.scale,
        kv_scales=case.kv_scales,
        **{name: value for name, value in options.items() if name != "return_lse"},
    )


def allowed_error(case: Case, options: dict[str, Any], expected: np.ndarray) -> np.ndarray:
    """How far each number of a result may be off.

    Scores and sums are float32 in any kernel. In half precision the result is rounded once, and
    so may be each weight before it meets its value, because tensor cores multiply equal types:
    that is off by at most one roundoff of the sum over |value|.
    """
    allowed = FLOAT32_SUMS * (1 + np.abs(expected))
    roundoff = UNIT_ROUNDOFF[case.q.dtype.name]
    if roundoff > UNIT_ROUNDOFF["float32"]:
        copies = 2 // case.kv_cache.shape[1]  # of a cache of keys alone, for their magnitudes
        kv_cache, scales = np.repeat(case.kv_cache, copies, axis=1), case.kv_scales
        kv_cache[:, 1] = np.abs(kv_cache[:, 1].astype(np.float32)).astype(kv_cache.dtype)
        scales = None if scales is None else np.repeat(scales, copies, axis=1)
        magnitude = oracle(replace(case, kv_cache=kv_cache, kv_scales=scales), options)[0]
        allowed = allowed + roundoff * (np.abs(expected) + magnitude)
    return allowed


def assert_agrees(got: Result, case: Case, options: dict[str, Any]) -> None:
    """The kernel's result is the oracle's."""
    out, lse = oracle(case, options)
    _assert_within(got[0], out, allowed_error(case, options, out))
    if options.get("return_lse"):
        assert got[1] is not None
        np.testing.assert_allclose(got[1], lse, rtol=FLOAT32_SUMS, atol=FLOAT32_SUMS)


def assert_same(one: Result, other: Result, case: Case, options: dict[str, Any]) -> None:
    """Two results of a kernel for what is the same case in two forms: each may be off."""
    _assert_within(one[0], other[0], 2 * allowed_error(case, options, other[0]))
    if options.get("return_lse"):
        np.testing.assert_allclose(one[1], other[1], rtol=FLOAT32_SUMS, atol=2 * FLOAT32_SUMS)


def _assert_within(got: np.ndarray, expected: np.ndarray, allowed: np.ndarray) -> None:
    assert got.shape == expected.shape
    # A NaN compares false.
    wrong = ~(np.abs(got - expected) <= allowed)
    if wrong.any():
        t, h, d = np.argwhere(wrong)[0]
        raise AssertionError(
            f"{wrong.sum()} of {wrong.size} numbers are off; the first is token {t}, head {h}, "
            f"dimension {d}: {got[t, h, d]} instead of {expected[t, h, d]} ± {allowed[t, h, d]:.2g}"
        )
