"""What layers know of a step."""

import jax
import jax.numpy as jnp
import numpy as np

from jax_engine.layers.batch import make_batch, one_sequence
from jax_engine.layers.rotary import angles_of
from jax_engine.model_spec import AttentionSpec, LatentSpec, NormSpec, QueryGrowth, RopeConfig

# Two rotary embeddings and two rules of growth, not in the order of their numbers.
SPECS = [
    AttentionSpec(4, 2, 8, rope=RopeConfig(50.0), query_growth=QueryGrowth(0.5, 7)),
    AttentionSpec(2, 2, 8, rope=RopeConfig(10.0)),
    AttentionSpec(8, 2, 8, query_growth=QueryGrowth(0.25, 5)),
]
LENGTH = 23


def test_a_batch_crosses_the_border_of_a_compiled_function() -> None:
    """Arrays as they are, and what is not an array is part of its structure."""
    batch, _ = one_sequence(SPECS, 3, LENGTH, "float32")
    passed = jax.jit(lambda one: one)(batch)
    assert jax.tree.structure(passed) == jax.tree.structure(batch)
    jax.tree.map(np.testing.assert_array_equal, passed, batch)
    assert passed.sequences.metadata.backend == batch.sequences.metadata.backend
    assert list(passed.growth) == [SPECS[0].query_growth, SPECS[2].query_growth]


def test_each_layer_finds_its_own_angles_and_growth() -> None:
    batch, _ = one_sequence(SPECS, 3, LENGTH, "float32")
    at = np.arange(LENGTH)
    for spec, theta in ((SPECS[0], 50.0), (SPECS[1], 10.0)):
        angles = at[:, None] * theta ** (-np.arange(0, 8, 2) / 8)
        found = angles_of(spec, batch.angles, None)
        assert found is not None
        np.testing.assert_allclose(found[0][:, 0], np.cos(angles), atol=1e-5)
        np.testing.assert_allclose(found[1][:, 0], np.sin(angles), atol=1e-5)
    for spec, beta, length in ((SPECS[0], 0.5, 7), (SPECS[2], 0.25, 5)):
        assert spec.query_growth is not None
        expected = 1 + beta * np.log1p(at // length)
        np.testing.assert_allclose(batch.growth[spec.query_growth][:, 0, 0], expected, rtol=1e-6)


def test_tokens_behind_the_last_sequence_are_padding() -> None:
    """Sequences of 2, 1 and no tokens, in room for 5."""
    starts, lens = jnp.array([0, 2, 3, 3]), jnp.array([9, 1, 0])
    arrays = jnp.zeros((3, 4), jnp.int32), lens, starts, jnp.full(5, -1), jnp.zeros(5, jnp.int32)
    batch = make_batch(SPECS, jnp.zeros((1, 2, 4, 2, 4, 8)), *arrays, dtype="float32")
    assert batch.num_tokens == 3
    metadata = batch.sequences.metadata
    assert (metadata.num_tokens, metadata.num_seqs) == (5, 3)


def test_a_sequence_alone_fills_its_cache_from_the_first_slot_on() -> None:
    batch, kv_cache = one_sequence(SPECS, 3, LENGTH, "bfloat16")
    assert kv_cache.shape == (3, 2, 2, 2, 16, 8) and kv_cache.dtype == jnp.bfloat16
    assert batch.sequences.block_tables.tolist() == [[0, 1]]
    assert batch.sequences.context_lens.tolist() == [LENGTH]
    assert batch.positions.tolist() == batch.slot_mapping.tolist() == list(range(LENGTH))
    assert batch.num_tokens == LENGTH
    latent = AttentionSpec(4, 1, 6, latent=LatentSpec(4, 4, 4, NormSpec(1e-6)), rotary_dim=2)
    assert one_sequence([latent], 1, 16, "float32")[1].shape == (1, 1, 1, 1, 16, 6)
