"""Tiny Llama and Mistral checkpoints made of numbers that NumPy draws the same everywhere.

Shared by the script that asks PyTorch transformers for the goldens (Python 3.11) and by the tests
that compare the engine and the reference to them; so it imports NumPy and nothing else.
"""

import zlib
from typing import Any

import numpy as np

_LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def _llama(**changes: Any) -> dict[str, Any]:
    return _LLAMA | changes


def _scaled(kind: str, **options: Any) -> dict[str, Any]:
    return _llama(rope_scaling={"rope_type": kind, **options})


CONFIGS: dict[str, dict[str, Any]] = {
    "plain": _llama(),
    "tied": _llama(tie_word_embeddings=True),
    "biases": _llama(attention_bias=True, mlp_bias=True),
    "one_kv_head": _llama(num_key_value_heads=1, rope_theta=700.0),
    "no_gqa": _llama(num_key_value_heads=4),
    "wide_heads": _llama(head_dim=16),
    "linear": _scaled("linear", factor=4.0),
    "dynamic": _llama(
        rope_scaling={"rope_type": "dynamic", "factor": 2.0}, max_position_embeddings=20
    ),
    "llama3": _scaled(
        "llama3",
        factor=8.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=16,
    ),
    "yarn": _scaled("yarn", factor=4.0, original_max_position_embeddings=16),
    "yarn_options": _scaled(
        "yarn",
        factor=4.0,
        original_max_position_embeddings=16,
        beta_fast=16.0,
        beta_slow=2.0,
        mscale=1.0,
        mscale_all_dim=0.5,
        truncate=False,
    ),
    "mistral_window": _LLAMA
    | {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 7},
}

# 40 tokens: what "dynamic" stretches to, where alone Hugging Face's growing base is the fixed one.
PROMPT = [(7 * index * index + 3 * index + 5) % 61 for index in range(40)]
ROWS = [0, 1, 7, 8, 15, 23, 31, 39]  # positions whose logits are kept
NUM_GREEDY = 16


# Cases whose greedy continuation is kept too: decoding over the cache, token by token. (Not
# "dynamic", which Hugging Face changes with each token.)
GREEDY = ("plain", "biases", "llama3", "mistral_window")


def weights(config: dict[str, Any]) -> dict[str, np.ndarray]:
    """Every tensor under its Hugging Face name, float32."""
    return {name: _draw(name, shape) for name, shape in _shapes(config).items()}


def _draw(name: str, shape: tuple[int, ...]) -> np.ndarray:
    numbers = np.random.RandomState(zlib.crc32(name.encode())).uniform(-1, 1, shape)
    if "norm" in name:
        return (1 + 0.3 * numbers).astype(np.float32)
    return (0.35 * numbers).astype(np.float32)


def _shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    width, ffn = config["hidden_size"], config["intermediate_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    matrices = {
        "self_attn.q_proj": (queries, width),
        "self_attn.k_proj": (keys, width),
        "self_attn.v_proj": (keys, width),
        "self_attn.o_proj": (width, queries),
        "mlp.gate_proj": (ffn, width),
        "mlp.up_proj": (ffn, width),
        "mlp.down_proj": (width, ffn),
    }
    table = (config["vocab_size"], width)
    shapes = {"model.embed_tokens.weight": table, "model.norm.weight": (width,)}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = table
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        shapes[f"{prefix}.input_layernorm.weight"] = (width,)
        shapes[f"{prefix}.post_attention_layernorm.weight"] = (width,)
        for name, shape in matrices.items():
            shapes[f"{prefix}.{name}.weight"] = shape
            biased = config["attention_bias" if "attn" in name else "mlp_bias"]
            if biased:
                shapes[f"{prefix}.{name}.bias"] = shape[:1]
    return shapes
