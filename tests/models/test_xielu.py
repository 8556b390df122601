"""xIELU, the activation that Apertus learns, against the oracle."""

import jax.numpy as jnp
import numpy as np
import pytest

from jax_engine.errors import ConfigError
from jax_engine.layers.mlp import xielu
from jax_engine.model_spec import MlpSpec
from reference.activations import xielu as oracle

NUMBERS = np.array([[0.55, -0.8, 0.5, -1e-6], [-3.0, 4.0, 0.0, -0.25], [2.0, 0.1, -0.7, 0.3]])
POINTS = [0.0, -0.0, 1e-30, -1e-30, 1e-6, -1e-6, 0.3, -0.3, 7.0, -7.0, 90.0, -90.0, 3e4, -3e4]


@pytest.mark.parametrize("numbers", NUMBERS, ids=str)
def test_it_is_the_oracle_s(numbers: np.ndarray) -> None:
    drawn = np.random.default_rng(5).normal(0, 3, 200)
    x = np.concatenate([POINTS, drawn]).astype(np.float32)[None]
    found = np.asarray(xielu(jnp.asarray(x), jnp.asarray(numbers, jnp.float32)))
    np.testing.assert_allclose(found, oracle(x.astype(np.float64), numbers), rtol=2e-5, atol=1e-6)


def test_a_row_has_the_same_bits_beside_others() -> None:
    rng = np.random.default_rng(2)
    rows = jnp.asarray(rng.normal(0, 2, (9, 37)), jnp.float32)
    numbers = jnp.asarray(NUMBERS[0], jnp.float32)
    every = np.asarray(xielu(rows, numbers))
    for place, row in enumerate(rows):
        np.testing.assert_array_equal(np.asarray(xielu(row[None], numbers))[0], every[place])


def test_a_network_with_a_gate_is_refused() -> None:
    with pytest.raises(ConfigError, match="'xielu' must be of a network without a gate"):
        MlpSpec(8, "xielu")
