"""Rotary embeddings: against numbers of transformers, and against what they are for."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.rope import apply_rope, rope_frequencies

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
STEEP = {"beta_fast": 20, "beta_slow": 2, "mscale": 1, "mscale_all_dim": 0.5, "truncate": False}

# Printed by transformers 5.23 (ROPE_INIT_FUNCTIONS on torch 2.13) for head_dim 16: theta,
# max_position_embeddings, rope_scaling; the frequencies, the factor on cos and sin. For "dynamic"
# it was asked for a sequence of 4 * 4096 tokens, which is the rule here.
PUBLISHED: dict[str, tuple[float, int, dict[str, Any], list[float], float]] = {
    "linear": (
        10000.0,
        4096,
        {"type": "linear", "factor": 4.0},
        [
            *(0.25, 0.079056941, 0.025, 0.0079056947),
            *(0.0024999999, 0.00079056947, 0.00025000001, 7.9056947e-05),
        ],
        1.0,
    ),
    "dynamic": (
        10000.0,
        4096,
        {"rope_type": "dynamic", "factor": 4},
        [
            *(1.0, 0.21921247, 0.048054103, 0.010534058),
            *(0.0023091969, 0.00050620473, 0.00011096639, 2.4325213e-05),
        ],
        1.0,
    ),
    "llama3": (
        500000.0,
        131072,
        LLAMA3,
        [
            *(1.0, 0.19392276, 0.037606031, 0.0072926651),
            *(0.00052484602, 3.4281024e-05, 6.6478697e-06, 1.2891732e-06),
        ],
        1.0,
    ),
    "yarn": (
        10000.0,
        16384,
        YARN,
        [
            *(1.0, 0.31622776, 0.1, 0.025693506),
            *(0.0062499996, 0.0013834966, 0.00025000001, 7.9056947e-05),
        ],
        1.138629436111989,
    ),
    "yarn, all options": (
        10000.0,
        16384,
        YARN | STEEP,
        [
            *(1.0, 0.31622776, 0.1, 0.031622779),
            *(0.0063486258, 0.00082175765, 0.00025000001, 7.9056947e-05),
        ],
        1.0648216253695715,
    ),
    "yarn, attention_factor, the old context not given": (
        10000.0,
        16384,
        {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.3},
        [
            *(1.0, 0.31622776, 0.1, 0.031622779),
            *(0.0081249997, 0.0019764237, 0.00043750001, 7.9056947e-05),
        ],
        1.3,
    ),
    "yarn, factor not given": (
        10000.0,
        16384,
        {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 2048},
        [
            *(1.0, 0.31622776, 0.1, 0.024705295),
            *(0.0056249998, 0.001087033, 0.00012500001, 3.9528473e-05),
        ],
        1.2079441541679836,
    ),
    "yarn, a step instead of a ramp": (
        10000.0,
        6,
        {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 6},
        [
            *(1.0, 0.15811388, 0.050000001, 0.015811389),
            *(0.0049999999, 0.0015811389, 0.00050000002, 0.00015811389),
        ],
        1.0693147180559945,
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_frequencies_are_those_of_transformers(name: str) -> None:
    theta, max_positions, scaling, expected, expected_factor = PUBLISHED[name]
    frequencies, factor = rope_frequencies(16, theta, max_positions, scaling)
    assert frequencies.dtype == np.float32
    np.testing.assert_allclose(frequencies, expected, rtol=1e-6)
    assert factor == pytest.approx(expected_factor, rel=1e-12)


@pytest.mark.parametrize("rope_type", ["linear", "dynamic", "yarn"])
def test_a_factor_of_one_stretches_nothing(rope_type: str) -> None:
    scaling = {"rope_type": rope_type, "factor": 1.0}
    frequencies, factor = rope_frequencies(16, 10000.0, 4096, scaling)
    np.testing.assert_allclose(frequencies, rope_frequencies(16, 10000.0, 4096)[0], rtol=1e-6)
    assert factor == 1.0


def test_theta_may_stand_in_the_scaling() -> None:
    inside, _ = rope_frequencies(16, 1.0, 4096, {"rope_type": "default", "rope_theta": 10000.0})
    np.testing.assert_array_equal(inside, rope_frequencies(16, 10000.0, 4096)[0])


def test_an_unknown_rope_type_is_refused() -> None:
    with pytest.raises(ValueError, match="rope_type 'spiral'; known are 'default', 'linear'"):
        rope_frequencies(16, 10000.0, 4096, {"rope_type": "spiral"})


@given(
    seed=st.integers(0, 2**32 - 1),
    p=st.integers(0, 500),
    q=st.integers(0, 500),
    by=st.integers(0, 99),
)
def test_a_product_depends_on_the_distance_alone(seed: int, p: int, q: int, by: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(2, 1, 1, 8))
    frequencies, _ = rope_frequencies(8, 100.0, 1024)

    def product(p: int, q: int) -> float:
        at_p = apply_rope(x, np.array([p]), frequencies)
        return float((at_p * apply_rope(y, np.array([q]), frequencies)).sum())

    assert product(p, q) == pytest.approx(product(p + by, q + by), abs=1e-3)


@given(seed=st.integers(0, 2**32 - 1), factor=st.floats(0.5, 2.0))
def test_a_turn_keeps_the_length_but_for_the_factor(seed: int, factor: float) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(3, 2, 8))
    frequencies, _ = rope_frequencies(8, 100.0, 1024)
    turned = apply_rope(x, rng.integers(0, 1024, size=3), frequencies, factor)
    lengths = np.linalg.norm(x, axis=-1)
    np.testing.assert_allclose(np.linalg.norm(turned, axis=-1), factor * lengths)
    still = apply_rope(x, np.zeros(3, dtype=int), frequencies)
    np.testing.assert_array_equal(still, x)
