"""I39 for every decoder: switches in any combination, the oracle's logits against the engine's."""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from jax_engine.models.decoder import Decoder
from jax_engine.models.leaves import abstract_leaves, fill_state, transforms_of
from jax_engine.models.model_config import ModelConfig
from jax_engine.models.weight_loader import load_leaves
from jax_engine.operations import formats_for
from jax_engine.weights.dense import Dense, IndexedDense
from jax_engine.weights.format import Formats
from reference.kv_cache import KVCache
from reference.transformer import Transformer
from reference.transformer_config import TransformerConfig
from tests.models.paged import PagedRun
from tests.support import knobs
from tests.weights.arrays_source import ArraysSource

FLOAT32 = jnp.dtype(jnp.float32)
FORMATS: dict[str, Callable[[], Formats]] = {
    "this device": lambda: formats_for(FLOAT32),
    "a GPU": lambda: Formats(Dense(), Dense()),
    "a CPU without kernels": lambda: Formats(IndexedDense(), Dense()),
}
LENGTH = 13


def engine_logits(
    config: TransformerConfig, weights: knobs.Weights, formats: Formats, ids: list[int]
) -> np.ndarray:
    """Logits of an engine's steps: two chunks and one decoded token."""
    spec = knobs.specification(config)
    decoder = nnx.eval_shape(lambda: Decoder(spec, dtype=FLOAT32, formats=formats))
    graphdef, state = nnx.split(decoder)
    leaves = abstract_leaves(state, spec)
    transforms = transforms_of(leaves, knobs.declared(config))
    params = fill_state(state, load_leaves(ArraysSource(weights), leaves, transforms))
    run = PagedRun(ModelConfig("any", spec, {}), graphdef, params)
    return np.concatenate([run.feed(part) for part in (ids[:7], ids[7:-1], ids[-1:])])


def oracle_logits(config: TransformerConfig, weights: knobs.Weights, ids: list[int]) -> np.ndarray:
    """All at once, in one block."""
    model, length = Transformer(config, weights), len(ids)
    cache = KVCache(**config.cache_sizes(), num_blocks=1, block_size=length)
    every = np.arange(length)
    batch = np.array([[0]]), np.array([length]), np.array([0, length])
    hidden = model.forward(np.array(ids), every, cache, *batch, slot_mapping=every)
    return model.compute_logits(hidden)


@pytest.mark.slow
@pytest.mark.parametrize("formats_of", FORMATS.values(), ids=FORMATS)
@settings(  # each example compiles a model
    max_examples=max(2, settings().max_examples // 8),
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(knobs.transformer_configs(), st.integers(0, 2**32 - 1))
def test_i39_any_switches_give_the_oracle_s_logits(
    formats_of: Callable[[], Formats], config: TransformerConfig, seed: int
) -> None:
    config = dataclasses.replace(
        config, head_bias=config.head_bias and not config.tie_word_embeddings
    )
    weights = knobs.random_weights(config, seed)
    ids = np.random.default_rng(seed).integers(0, config.vocab_size, LENGTH).tolist()
    found = engine_logits(config, weights, formats_of(), ids)
    expected = oracle_logits(config, weights, ids)
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(found, expected, atol=1e-4 * scale)
