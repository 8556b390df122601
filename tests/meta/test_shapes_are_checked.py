"""The import hook of conftest.py works: a wrong shape fails at the call, in tests only."""

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from pallas_kernels import write_kv
from reference.attention import softmax_attention


def test_wrong_rank_in_the_kernels() -> None:
    cache = jnp.zeros((1, 2, 3, 1, 4, 8))
    with pytest.raises(TypeCheckError, match="slot_mapping"):
        write_kv(cache, jnp.zeros((2, 1, 8)), jnp.zeros((2, 1, 8)), jnp.zeros((2, 1), int), layer=0)


def test_letters_bind_across_arguments() -> None:
    cache = jnp.zeros((1, 2, 3, 1, 4, 8))
    with pytest.raises(TypeCheckError):
        write_kv(cache, jnp.zeros((2, 1, 8)), jnp.zeros((3, 1, 8)), jnp.zeros(2, int), layer=0)


def test_wrong_dtype_in_the_oracle() -> None:
    with pytest.raises(TypeCheckError):
        softmax_attention(np.zeros(3, np.int64), np.zeros((3, 4)))
