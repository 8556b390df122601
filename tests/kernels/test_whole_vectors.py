"""exp and its like have the same bits for any number of rows."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_engine.operations.equal_bits import in_whole_vectors
from tests.support.optimised import OPTIMISED

ROWS = 256
FUNCTIONS = {
    "exp": jnp.exp,
    "log": lambda x: jnp.log(jnp.abs(x)),
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
    "cos": lambda x: jnp.cos(30 * x),
    "log1p": lambda x: jnp.log1p(jnp.abs(x)),
}


def differing(function: Callable[[jax.Array], jax.Array], size: int) -> int:
    """How many numbers of rows of a size are others alone, or in few, than in ROWS."""
    x = (2 * np.random.default_rng(size).standard_normal((ROWS, size))).astype(np.float32)
    run = jax.jit(function, compiler_options=OPTIMISED)
    whole = np.asarray(run(x))
    return sum(
        int((np.asarray(run(x[at : at + rows])) != whole[at : at + rows]).sum())
        for rows in (1, 2, 3, 5, 16)
        for at in range(0, ROWS - rows, rows)
    )


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.slow
def test_bits_depend_on_the_number_alone(name: str) -> None:
    for size in (1, 4, 8, 20, 64, 100):
        assert differing(lambda x: in_whole_vectors(FUNCTIONS[name], x), size) == 0, size


@pytest.mark.slow
def test_xla_alone_rounds_by_the_shape() -> None:
    """Otherwise the tests above would prove nothing."""
    assert sum(differing(FUNCTIONS[name], size) for name in FUNCTIONS for size in (8, 100)) > 0


def test_values_and_shapes_are_the_function_s() -> None:
    for shape in ((), (0, 5), (3,), (2, 3, 5), (1, 128)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        found = in_whole_vectors(jnp.tanh, jnp.asarray(x))
        assert found.shape == x.shape
        np.testing.assert_allclose(found, np.tanh(x), rtol=1e-6)
