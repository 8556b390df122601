"""The draw on a CPU against the oracle's rules, where rounding decides nothing."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from cpu_kernels.sampling.draw import STRETCH, draw
from jax_engine import SamplingParams
from reference import sampling as oracle

VOCABS = st.one_of(st.integers(1, 140), st.sampled_from([300, 1000, STRETCH, 2 * STRETCH + 70]))
_draw = jax.jit(draw)


def tokens_of(
    logits: Any, u: Any, *, temperature: Any = 1, n: Any = 0, k: Any = 0, p: Any = 1, m: Any = 0
) -> np.ndarray:
    """One token for each of the rows, or for each u of the same row."""
    u = np.float32(np.atleast_1d(u))
    rows = np.broadcast_to(np.float32(logits), (len(u), np.shape(logits)[-1]))
    settings = (temperature, n, k, p, m)
    kinds = (np.float32, np.float32, np.int32, np.float32, np.float32)
    each = [np.full(len(u), value, kind) for value, kind in zip(settings, kinds, strict=True)]
    return np.asarray(_draw(rows, *each, u))


@given(
    vocab=VOCABS,
    seed=st.integers(0, 2**32),
    levels=st.sampled_from([2, 20, 10_000]),
    temperature=st.sampled_from([0.3, 1.0, 2.5]),
    n=st.sampled_from([0.0, 0.0, 0.001, 0.7, 1.3, 2.2, 50.0]),
    k=st.sampled_from([0, 1, 2, 5, 260, 999, 3000]),
    p=st.sampled_from([1.0, 0.99, 0.8, 0.31, 0.001]),
    min_p=st.sampled_from([0.0, 0.013, 0.4, 1.0]),
)
@example(vocab=140, seed=0, levels=10_000, temperature=1.0, n=1.3, k=0, p=1.0, min_p=0.0)
@example(vocab=300, seed=0, levels=10_000, temperature=2.5, n=1.3, k=260, p=1.0, min_p=0.0)
@example(vocab=300, seed=0, levels=10_000, temperature=2.5, n=1.3, k=260, p=0.8, min_p=0.0)
@example(vocab=140, seed=0, levels=10_000, temperature=2.5, n=2.2, k=0, p=0.8, min_p=0.0)
@example(vocab=300, seed=0, levels=10_000, temperature=2.5, n=0.0, k=200, p=1.0, min_p=0.0)
def test_i49_each_token_is_drawn_in_the_middle_of_its_interval(
    vocab, seed, levels, temperature, n, k, p, min_p
) -> None:
    """I49: tokens, intervals and their order are the oracle's; few levels make many ties."""
    rng = np.random.default_rng(seed)
    logits = (rng.integers(-levels, levels, vocab) * (4.0 / levels)).astype(np.float32)
    logits[rng.random(vocab) < 0.1] = -np.inf
    assume(np.isfinite(logits).any())
    border = logits.max() - n * np.std(logits[np.isfinite(logits)], dtype=np.float64)
    assume(n == 0.0 or np.abs(logits[logits < logits.max()] - border).min(initial=1) > 1e-4)
    params = SamplingParams(temperature=temperature, top_n_sigma=n, top_k=k)
    mass = np.cumsum(np.sort(oracle.distribution(logits, params))[::-1])
    assume(p == 1.0 or np.abs(mass - p).min() > 1e-5)  # rounding decides there
    wanted = oracle.distribution(logits, dataclasses.replace(params, top_p=p, min_p=min_p))
    certain = np.flatnonzero(wanted > 2e-5)
    middle = (np.cumsum(wanted) - wanted / 2)[certain]
    settings = {"temperature": temperature, "n": n, "k": k, "p": p, "m": min_p}
    found = tokens_of(logits, middle, **settings)
    np.testing.assert_array_equal(found, certain)
    ends = tokens_of(logits, [0, 1 - 2**-24], **settings)
    assert (wanted[ends] > 0).all()


@given(VOCABS, st.integers(0, 2**32))
def test_without_temperature_it_is_the_first_of_the_most_probable(vocab, seed) -> None:
    """Few different values, so that many are equal; some are minus infinity, or all."""
    logits = np.random.default_rng(seed).integers(-3, 1, (5, vocab)).astype(np.float32)
    logits[logits == -3] = -np.inf
    logits[4, :] = -np.inf
    found = tokens_of(logits, np.full(5, 0.99), temperature=0, n=1, k=3, p=0.5, m=0.5)
    np.testing.assert_array_equal(found, np.argmax(logits, axis=1))


def test_a_row_is_drawn_the_same_whatever_is_beside_it() -> None:
    rng = np.random.default_rng(0)
    logits, u = rng.standard_normal((40, 700)).astype(np.float32), rng.random(40)
    settings = {
        "temperature": rng.choice([0.0, 0.5, 1.0], 40),
        "n": rng.choice([0.0, 1.5], 40),
        "k": rng.choice([0, 30], 40),
        "p": rng.choice([1.0, 0.9], 40),
        "m": rng.choice([0.0, 0.1], 40),
    }
    together = tokens_of(logits, u, **settings)
    for row in range(40):
        mine = {name: values[row] for name, values in settings.items()}
        assert tokens_of(logits[row : row + 1], u[row], **mine) == together[row]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("settings", [{}, {"n": 1}, {"k": 2}, {"p": 0.7}, {"m": 0.5}])
def test_what_is_not_a_number_is_never_drawn(temperature: float, settings: dict[str, Any]) -> None:
    logits = np.full((4, 90), np.nan, np.float32)
    logits[1, [7, 80]] = 0.0
    logits[2], logits[3] = -np.inf, np.inf
    found = tokens_of(logits, [0.9] * 4, temperature=temperature, **settings)
    assert found[1] == (80 if temperature else 7)
    assert ((found >= 0) & (found < 90)).all()  # of the others, some token


def test_top_k_may_keep_most_of_a_large_vocabulary() -> None:
    """30,000 of 50,000 different logits, in no order."""
    logits = np.random.default_rng(0).permutation(50_000).astype(np.float32) / 50_000
    kept = np.argsort(logits)[-30_000:]
    u = np.random.default_rng(1).random(500)
    found = tokens_of(logits, u, k=30_000)
    assert np.isin(found, kept).all()
    assert logits[found].min() < 0.5  # of the lower ones some


@pytest.mark.parametrize("mean", [0.0, 3000.0, -3000.0])
def test_top_n_sigma_is_about_differences_of_logits(mean: float) -> None:
    """1024 logits in steps of 1/128, wherever they lie: 1.5 deviations keep the upper 444."""
    num_tokens = 1024
    logits = np.random.default_rng(0).permutation(num_tokens).astype(np.float32) / 128 + mean
    reach = 1.5 * float(np.std(logits, dtype=np.float64))
    kept = np.flatnonzero(logits >= logits.max() - reach)
    assert len(kept) == 444
    u = np.random.default_rng(1).random(4000)
    found = np.unique(tokens_of(logits, u, temperature=4, n=1.5))
    assert np.isin(found, kept).all() and len(found) > 0.9 * len(kept)
    assert kept[np.argmin(logits[kept])] in found
