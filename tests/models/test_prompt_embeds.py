"""Where each family's first layer is given vectors in place of its table's, as in vLLM."""

from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jax_engine.models.model_loader import open_model
from tests.support.builders import family

IDS = np.array([3, 9, 4, 9], np.int32)
GIVEN = np.array([True, False, True, True])
# Whether vLLM's `inputs_embeds` have the factor of the table; those without a factor have none.
SCALED = {
    "gemma3": True,
    "vaultgemma": True,
    "minicpm3": True,
    "granite": False,
    "granitemoe": False,
}
PLAIN = ["llama", "bloom", "gpt2", "opt"]


@pytest.mark.parametrize("name", [*SCALED, *PLAIN])
def test_vectors_of_the_table_are_its_tokens(name: str) -> None:
    """Positions and norms that follow the table are those of any vector."""
    ids, is_given = jnp.asarray(IDS), jnp.asarray(GIVEN)
    opened = open_model(str(family(name, 8))).load()
    decoder: Any = nnx.merge(opened.graphdef, opened.params)
    batch: Any = SimpleNamespace(
        adapters=None, positions=jnp.arange(4), num_tokens=jnp.int32(4), batch_invariant=False
    )
    vectors = decoder.embed(ids, None)
    factor = decoder.spec.embedding_factor
    assert (factor != 1) == (name in SCALED), name
    if SCALED.get(name):
        vectors = vectors * jnp.asarray(factor, vectors.dtype)
    wanted = np.asarray(decoder.embedded(ids, batch))
    given = jnp.where(is_given[:, None], vectors, jnp.nan), is_given
    found = np.asarray(decoder.embedded(jnp.where(is_given, 0, ids), batch, given))
    assert np.isfinite(wanted).all() and (found == wanted).all()
