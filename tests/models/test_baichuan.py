"""Baichuan 13B and the head of Baichuan 2, which no other family has: the oracle alone (I39)."""

from typing import Any

import numpy as np
import pytest

from jax_engine.models.families.baichuan import VOCABULARY_OF_2
from jax_engine.models.model_loader import load_model
from jax_engine.models.registry import config_from_hf
from reference.transformer import Transformer
from reference.transformer_config import TransformerConfig, weight_shapes
from tests.golden.families.isomorphs import packed
from tests.models.checkpoints import write_checkpoint
from tests.models.paged import PagedRun
from tests.reference.test_families import logits

SIZES: dict[str, Any] = {
    "hidden_size": 24, "intermediate_size": 37, "num_hidden_layers": 2, "num_attention_heads": 3,
    "rms_norm_eps": 1e-6,
}  # fmt: skip
LENGTH = 21


@pytest.mark.parametrize("vocab_size", [61, VOCABULARY_OF_2], ids=["1", "2"])
def test_i39_baichuan_13b_is_the_oracle_s_llama_with_alibi(vocab_size: int, tmp_path: Any) -> None:
    """Three heads: slopes 2**-4 and 2**-8, then 2**-2. Version 2 divides the head's rows."""
    oracle = TransformerConfig(
        vocab_size=vocab_size,
        num_key_value_heads=3,
        head_dim=8,
        layer_ropes=(None, None),
        alibi_slopes=(2**-4, 2**-8, 2**-2),
        **SIZES,
    )
    rng = np.random.default_rng(vocab_size)
    weights = {
        name: (name.endswith("norm.weight") + rng.uniform(-0.5, 0.5, shape)).astype(np.float32)
        for name, shape in weight_shapes(oracle).items()
    }
    config = SIZES | {
        "architectures": ["BaichuanForCausalLM"],
        "vocab_size": vocab_size,
        "model_max_length": 64,
        "tie_word_embeddings": False,
    }
    model = load_model(str(write_checkpoint(tmp_path, config, packed(weights, "W_pack"))))
    ids = rng.integers(0, vocab_size, LENGTH).tolist()
    run = PagedRun(model.config, model.graphdef, model.params)
    found = np.concatenate([run.feed(ids[:12]), run.feed(ids[12:])])
    if vocab_size == VOCABULARY_OF_2:
        head = weights["lm_head.weight"]
        weights["lm_head.weight"] = head / np.linalg.norm(head, axis=1, keepdims=True)
    expected = logits(Transformer(oracle, weights), ids)
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())
    assert model.config.max_context_len == 64


def test_7b_rotates_and_13b_does_not() -> None:
    """Only the 7B models' files have `max_position_embeddings`."""
    config = SIZES | {"architectures": ["BaichuanForCausalLM"], "vocab_size": 61}
    small = config_from_hf(config | {"max_position_embeddings": 96})
    large = config_from_hf(config | {"model_max_length": 64})
    assert {(one.rope is None, one.alibi_slopes) for one in small.spec.attentions} == {
        (False, None)
    }
    slopes = (2**-4, 2**-8, 2**-2)
    assert {(one.rope, one.alibi_slopes) for one in large.spec.attentions} == {(None, slopes)}
    assert (small.max_context_len, large.max_context_len) == (96, 64)
    assert config_from_hf(config).max_context_len == 4096
