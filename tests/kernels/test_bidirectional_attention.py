"""Attention without a cache: both implementations against the oracle, and a sequence's own bits."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pallas_kernels import bidirectional_attention
from reference.encoder import bidirectional_attention as expected_of

BACKENDS = ("numba", "xla")
ROOM = {"tokens": 512, "seqs": 6}  # of each call: a program is compiled for each geometry only
GEOMETRIES = ((1, 1, 16), (3, 3, 12), (4, 2, 7), (6, 1, 32), (2, 2, 64))  # H, K, D


@partial(jax.jit, static_argnames=("num_heads", "backend"))
def attend(qkv: Any, starts: Any, window: Any, *, num_heads: int, backend: str) -> Any:
    scale = qkv.shape[2] ** -0.5
    options: dict[str, Any] = {"num_heads": num_heads, "scale": scale, "backend": backend}
    return bidirectional_attention(qkv, starts, window=window, **options)


def drawn(tokens: int, geometry: tuple[int, int, int], seed: int) -> np.ndarray:
    heads, kv_heads, dim = geometry
    shape = (tokens, heads + 2 * kv_heads, dim)
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def padded(sequences: list[np.ndarray], fill: float = np.nan) -> tuple[np.ndarray, np.ndarray]:
    """The sequences as a step has them: NaN behind them, and rows that are empty."""
    ends = np.cumsum([0, *map(len, sequences)])
    starts = np.full(ROOM["seqs"] + 1, ends[-1], np.int32)
    starts[: len(ends)] = ends
    qkv = np.full((ROOM["tokens"], *sequences[0].shape[1:]), fill, np.float32)
    qkv[: ends[-1]] = np.concatenate(sequences)
    return qkv, starts


lengths = st.lists(
    st.integers(1, 40) | st.sampled_from([127, 128, 129, 191, 192, 193]), min_size=1, max_size=5
).filter(lambda all_of_them: sum(all_of_them) <= ROOM["tokens"])
EVERYTHING = 2**31 - 1


@example(lengths=[400], geometry=(3, 3, 12), window=5, seed=0)
@example(lengths=[193, 1, 192], geometry=(6, 1, 32), window=200, seed=1)
@given(
    lengths=lengths,
    geometry=st.sampled_from(GEOMETRIES),
    window=st.integers(1, 300) | st.just(EVERYTHING),
    seed=st.integers(0, 2**32 - 1),
)
def test_each_sequence_is_that_of_the_oracle(
    lengths: list[int], geometry: tuple[int, int, int], window: int, seed: int
) -> None:
    """With NaN in every token that belongs to nobody."""
    heads, kv_heads, _ = geometry
    sequences = [drawn(one, geometry, seed + i) for i, one in enumerate(lengths)]
    qkv, starts = padded(sequences)
    for backend in BACKENDS:
        found = np.asarray(attend(qkv, starts, window, num_heads=heads, backend=backend))
        assert np.isfinite(found).all()
        for start, one in zip(starts, sequences, strict=False):
            q, k, v = np.split(one.astype(np.float64), (heads, heads + kv_heads), axis=1)
            k, v = (np.repeat(each, heads // kv_heads, axis=1) for each in (k, v))
            expected = expected_of(q, k, v, window)
            np.testing.assert_allclose(found[start : start + len(one)], expected, atol=2e-5)


@given(
    lengths=lengths,
    which=st.integers(0, 4),
    geometry=st.sampled_from(GEOMETRIES),
    window=st.sampled_from([1, 7, 150, EVERYTHING]),
)
def test_a_sequence_has_the_same_bits_in_any_company(
    lengths: list[int], which: int, geometry: tuple[int, int, int], window: int
) -> None:
    """Also where a neighbour is NaN."""
    sequences = [drawn(one, geometry, i) for i, one in enumerate(lengths)]
    which %= len(sequences)
    call = partial(attend, num_heads=geometry[0], backend="numba")
    alone = call(*padded([sequences[which]]), window)[: lengths[which]]
    qkv, starts = padded(sequences)
    own = slice(starts[which], starts[which + 1])
    other = np.full_like(qkv, np.nan)
    other[own] = qkv[own]
    for whole in (qkv, other):
        np.testing.assert_array_equal(call(whole, starts, window)[own], alone)


def test_halves_are_computed_in_float32_and_rounded_once() -> None:
    qkv, starts = padded([drawn(30, (2, 2, 16), 0)], fill=0.0)
    half = jnp.asarray(qkv, jnp.bfloat16)
    for backend in BACKENDS:
        found = attend(half, starts, EVERYTHING, num_heads=2, backend=backend)
        wide = half.astype(jnp.float32)
        exact = attend(wide, starts, EVERYTHING, num_heads=2, backend=backend)
        assert found.dtype == jnp.bfloat16
        np.testing.assert_array_equal(found, exact.astype(jnp.bfloat16))


@pytest.mark.parametrize(
    ("shape", "starts", "changes", "words"),
    [
        ((4, 0, 8), 2, {}, "expected queries, keys and values"),
        ((4, 4, 8), 2, {"num_heads": 4}, "num_heads=4"),
        ((4, 5, 8), 2, {"num_heads": 2}, "num_heads=2"),
        ((4, 7, 8), 2, {"num_heads": 3}, "num_heads=3"),
        ((4, 3, 8), 1, {}, "at least one sequence"),
        ((4, 3, 8), 2, {"window": 0}, "window=0 must be at least 1"),
        ((4, 3, 8), 2, {"backend": "triton"}, "lacks this operation"),
    ],
)
def test_what_does_not_fit_is_refused(
    shape: tuple[int, ...], starts: int, changes: dict[str, Any], words: str
) -> None:
    given = {"num_heads": 1, "scale": 1.0} | changes
    with pytest.raises(ValueError, match=words):
        bidirectional_attention(jnp.zeros(shape), jnp.zeros(starts, jnp.int32), **given)
