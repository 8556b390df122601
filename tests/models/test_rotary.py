"""Rotary frequencies against the oracle, for heads and contexts of real sizes.

The tiny checkpoints have four planes a head: YaRN's ramp begins and ends within one of them.
"""

from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from jax_engine.layers.rotary import inverse_frequencies
from jax_engine.model_spec import RopeConfig
from reference.rope import rope_frequencies

FACTORS = st.floats(1.0, 64.0)
CONTEXTS = st.sampled_from([16, 2048, 4096, 8192])
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}


@st.composite
def ropes(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["linear", "dynamic", "llama3", "yarn", "yarn"]))
    rope: dict[str, Any] = {"type": kind, "factor": draw(FACTORS)}
    if kind in ("llama3", "yarn"):
        rope["original_max_position_embeddings"] = draw(CONTEXTS)
    if kind == "llama3":
        rope["low_freq_factor"] = draw(st.floats(0.5, 2.0))
        rope["high_freq_factor"] = rope["low_freq_factor"] + draw(st.floats(0.5, 4.0))
    if kind == "yarn":
        rope["beta_fast"] = draw(st.floats(8.0, 64.0))
        rope["beta_slow"] = draw(st.floats(0.5, 4.0))
        rope["truncate"] = draw(st.booleans())
        rope["attention_factor"] = draw(st.none() | st.floats(0.5, 2.0))
        rope["mscale"] = draw(st.none() | st.floats(0.5, 2.0))
        rope["mscale_all_dim"] = draw(st.none() | st.floats(0.5, 2.0))
    return rope


@given(
    rope=ropes(), head_dim=st.sampled_from([8, 64, 128]), theta=st.sampled_from([500.0, 1e4, 5e5])
)
@example(YARN | {"truncate": False}, 64, 1e4)
@example(YARN | {"truncate": True}, 64, 1e4)
@example(YARN | {"mscale": 1.0, "mscale_all_dim": 0.5}, 128, 1e4)
def test_frequencies_are_the_oracle_s(rope: dict[str, Any], head_dim: int, theta: float) -> None:
    found, scaling = inverse_frequencies(RopeConfig(theta=theta, **rope), head_dim)
    named = {name: value for name, value in rope.items() if value is not None}
    wanted, wanted_scaling = rope_frequencies(
        head_dim, theta, 8192, named | {"rope_type": named["type"]}
    )
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-9)
    np.testing.assert_allclose(scaling, wanted_scaling, rtol=1e-6)
