"""The encoder of the oracle, by hand, and beside another way to say it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.encoder import Encoder, EncoderConfig, bidirectional_attention, pool

PLAIN = EncoderConfig(1, (None,), (None,), "relu", 0.0, post_norm=False, gated=False)
ONE, NONE = np.eye(2), np.zeros((2, 2))


def small(**changes: np.ndarray) -> dict[str, np.ndarray]:
    """Two numbers wide: tokens 0 and 1 are unit vectors, and no layer adds anything."""
    weights = {"embed.weight": ONE, "layers.0.qkv.weight": np.concatenate([NONE, NONE, ONE])}
    weights |= {f"layers.0.{name}.weight": NONE for name in ("o", "up", "down")}
    return weights | changes


def test_each_token_sees_the_mean_of_the_text() -> None:
    """Keys are zeros, so all weights are equal; the values are the tokens themselves."""
    given = small(**{"layers.0.o.weight": ONE})
    found = Encoder(PLAIN, given).states(np.array([0, 1]))
    np.testing.assert_allclose(found, [[1.5, 0.5], [0.5, 1.5]])


def test_tables_of_positions_and_types() -> None:
    table = np.array([[9.0, 9.0], [0.0, 5.0], [0.0, 7.0]])
    given = small(
        **{"positions.weight": table, "token_types.weight": np.array([[0.0, 0.0], [100.0, 0.0]])}
    )
    one = EncoderConfig(1, (None,), (None,), "relu", 0.0, False, False, first_position=1)
    found = Encoder(one, given).states(np.array([0, 0]), np.array([0, 1]))
    np.testing.assert_allclose(found, [[1.0, 5.0], [101.0, 7.0]])
    found = Encoder(one, given).states(np.array([0, 0]))
    np.testing.assert_allclose(found, [[1.0, 5.0], [1.0, 7.0]])


def test_norms_of_sums_and_norms_of_what_is_read() -> None:
    """A layer norm of two numbers is 1 for the larger one, and -1 for the other."""
    norms = {f"layers.0.{name}_norm.weight": np.ones(2) for name in ("attention", "mlp")}
    norms["layers.0.mlp_norm.bias"] = np.array([10.0, 0.0])
    after = EncoderConfig(1, (None,), (None,), "relu", 0.0, post_norm=True, gated=False)
    found = Encoder(after, small(**norms)).states(np.array([0]))
    np.testing.assert_allclose(found, [[11.0, -1.0]])
    given = small(**norms, **{"layers.0.o.weight": ONE})
    found = Encoder(PLAIN, given).states(np.array([0]))
    np.testing.assert_allclose(found, [[2.0, -1.0]])


def test_the_network_with_and_without_a_gate() -> None:
    given = small(**{"layers.0.up.weight": -ONE, "layers.0.down.weight": ONE})
    np.testing.assert_allclose(Encoder(PLAIN, given).states(np.array([0])), [[1.0, 0.0]])
    gated = EncoderConfig(1, (None,), (None,), "relu", 0.0, post_norm=False, gated=True)
    both = np.concatenate([ONE, 3 * ONE])
    given = small(**{"layers.0.up.weight": both, "layers.0.down.weight": ONE})
    np.testing.assert_allclose(Encoder(gated, given).states(np.array([0])), [[4.0, 0.0]])


def test_a_rotation_is_about_how_far_apart_tokens_are() -> None:
    """Equal tokens see themselves best, and others alike to both sides."""
    joined = np.concatenate([3 * ONE, 3 * ONE, ONE])
    given = small(**{"layers.0.qkv.weight": joined, "layers.0.o.weight": ONE})
    turned = EncoderConfig(1, (10000.0,), (None,), "relu", 0.0, post_norm=False, gated=False)
    ahead, behind = (Encoder(turned, given).states(np.array(ids)) for ids in ([0, 1], [1, 0]))
    np.testing.assert_allclose(ahead[0], ahead[1][::-1], rtol=1e-6)
    assert ahead[0, 1] != 0.5 and behind[0, 0] != 0.5


def test_an_unknown_way_to_pool() -> None:
    with pytest.raises(ValueError, match="found 'FIRST'"):
        pool(np.ones((1, 1)), "FIRST")


@given(
    count=st.integers(1, 9),
    heads=st.integers(1, 3),
    window=st.none() | st.integers(1, 12),
    seed=st.integers(0, 2**32 - 1),
)
def test_attention_is_a_softmax_under_a_mask(
    count: int, heads: int, window: int | None, seed: int
) -> None:
    q, k, v = np.random.default_rng(seed).standard_normal((3, count, heads, 4))
    scores = np.einsum("ihd,jhd->hij", q, k) / 2
    apart = np.abs(np.subtract.outer(np.arange(count), np.arange(count)))
    scores = np.where(apart < (window or count), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = np.einsum("hij,jhd->ihd", weights / weights.sum(-1, keepdims=True), v)
    np.testing.assert_allclose(bidirectional_attention(q, k, v, window), expected, atol=1e-12)
