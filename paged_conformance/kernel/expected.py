"""What a kernel's result may be: the oracle's, give or take what rounding explains."""

from dataclasses import replace

import numpy as np

from paged_conformance.kernel.arrays import UNIT_ROUNDOFF
from paged_conformance.kernel.cases import Case, Options
from paged_conformance.properties import Broken, demand
from reference.attention import paged_attention

# Both sides add up some hundred products of numbers of order 1, in float32 and different orders.
FLOAT32_SUMS = 1e-5

Result = tuple[np.ndarray, np.ndarray | None]


def oracle(case: Case, options: Options) -> tuple[np.ndarray, np.ndarray]:
    """The reference's result and log-sum-exp, rounded to float32."""
    kv_cache = case.kv_cache
    if case.kv_scales is None:
        kv_cache = kv_cache.astype(np.float32)
    return paged_attention(
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


def allowed_error(case: Case, options: Options, expected: np.ndarray) -> np.ndarray:
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


def assert_agrees(got: Result, case: Case, options: Options) -> None:
    """The kernel's result is the oracle's."""
    out, lse = oracle(case, options)
    _assert_within("numbers", got[0], out, allowed_error(case, options, out))
    if options.get("return_lse"):
        _assert_log_sum_exp(got[1], lse, FLOAT32_SUMS)


def assert_same(one: Result, other: Result, case: Case, options: Options) -> None:
    """Two results of a kernel for what is the same case in two forms: each may be off."""
    _assert_within("numbers", one[0], other[0], 2 * allowed_error(case, options, other[0]))
    if options.get("return_lse"):
        assert other[1] is not None
        _assert_log_sum_exp(one[1], other[1], 2 * FLOAT32_SUMS)


def assert_bits(got: np.ndarray, before: np.ndarray, because: str) -> None:
    """A result is the same numbers as before, all of them; NaN equals NaN."""
    differ = ~((got == before) | (np.isnan(got) & np.isnan(before)))
    if differ.any():
        place = tuple(map(int, np.argwhere(differ)[0]))
        raise Broken(
            f"{because}: {differ.sum()} of {differ.size} numbers changed; the first is "
            f"{_where(place)}: {got[place]} instead of {before[place]}"
        )


def _assert_log_sum_exp(got: np.ndarray | None, expected: np.ndarray, absolute: float) -> None:
    demand(got is not None, "return_lse was asked for, but there is no log-sum-exp")
    assert got is not None
    allowed = absolute + FLOAT32_SUMS * np.abs(expected)
    equal = np.isneginf(expected) & np.isneginf(got)  # whose difference is not a number
    _assert_within("log-sum-exps", np.where(equal, 0, got), np.where(equal, 0, expected), allowed)


def _assert_within(what: str, got: np.ndarray, expected: np.ndarray, allowed: np.ndarray) -> None:
    demand(
        got.shape == expected.shape,
        f"the {what} have the shape {got.shape} instead of {expected.shape}",
    )
    # A NaN compares false.
    wrong = ~(np.abs(got - expected) <= allowed)
    if wrong.any():
        place = tuple(map(int, np.argwhere(wrong)[0]))
        raise Broken(
            f"{wrong.sum()} of {wrong.size} {what} are off; the first is {_where(place)}: "
            f"{got[place]} instead of {expected[place]} ± {allowed[place]:.2g}"
        )


def _where(place: tuple[int, ...]) -> str:
    names = ("token", "head", "dimension")
    return ", ".join(f"{name} {i}" for name, i in zip(names, place, strict=False))
