"""Variants of families that the engine does not compute are refused, with the field and value."""

from typing import Any

import pytest

from jax_engine.errors import ConfigError
from jax_engine.models.registry import config_from_hf
from tests.golden.families.checkpoints import cases

CASES = cases()
QWEN = {
    "architectures": ["QWenLMHeadModel"],
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
}


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("bloom", "apply_residual_connection_post_layernorm", True),
        ("gpt2", "scale_attn_by_inverse_layer_idx", True),
        ("gpt_bigcode", "add_cross_attention", True),
        ("gpt_oss", "swiglu_limit", 5.0),
        ("gpt_oss", "swiglu_alpha", 1.0),
        ("olmoe", "clip_qkv", 8.0),  # behind the norms of q and k, unlike MPT
        ("opt", "do_layer_norm_before", False),  # OPT-350m
        ("opt", "word_embed_proj_dim", 16),  # OPT-350m
        ("opt", "layer_norm_elementwise_affine", False),
    ],
)
def test_a_variant_that_is_not_computed_is_refused(name: str, field: str, value: Any) -> None:
    config = CASES[name]["config"]
    config_from_hf(config)
    with pytest.raises(ConfigError, match=rf"{field} {value!r} is not supported .*; known: "):
        config_from_hf(config | {field: value})


def test_mpt_refuses_prefixes() -> None:
    config = CASES["mpt"]["config"]
    config = config | {"attn_config": config["attn_config"] | {"prefix_lm": True}}
    with pytest.raises(ConfigError, match="prefix_lm True is not supported"):
        config_from_hf(config)


@pytest.mark.parametrize(("field", "value"), [("no_bias", False), ("rotary_pct", 0.5)])
def test_qwen_1_refuses_what_no_checkpoint_has(field: str, value: Any) -> None:
    config_from_hf(QWEN)
    with pytest.raises(ConfigError, match=f"{field} {value!r} is not supported"):
        config_from_hf(QWEN | {field: value})
