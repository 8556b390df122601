"""Asks PyTorch transformers about the families with latent attention; see `make.py`.

    /tmp/torch311/bin/python -m tests.golden.families.make_latent

writes cases_latent.json and logits_latent.npz beside it.
"""

from typing import Any

from tests.golden.families import make
from tests.golden.families.first_cases import LLAMA

SIZES: dict[str, Any] = LLAMA | {
    "num_key_value_heads": 4,
    "kv_lora_rank": 20,
    "q_lora_rank": 14,
    "qk_nope_head_dim": 10,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
}
EXPERTS: dict[str, Any] = SIZES | {
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
}
GROUPS = {"n_group": 4, "topk_group": 2}
WIDE: dict[str, Any] = {
    "hidden_size": 48,
    "intermediate_size": 37,
    "num_attention_heads": 6,
    "num_key_value_heads": 6,
    "kv_lora_rank": 24,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
}


def yarn(mscale: float, mscale_all_dim: float) -> dict[str, Any]:
    rope = {
        "rope_type": "yarn",
        "rope_theta": 500.0,
        "factor": 4.0,
        "original_max_position_embeddings": 16,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": mscale,
        "mscale_all_dim": mscale_all_dim,
    }
    return {"rope_parameters": rope}


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "deepseek_v2_lite": ("DeepseekV2", EXPERTS | yarn(0.7, 0.7) | {"q_lora_rank": None}),
    "deepseek_v2": (
        "DeepseekV2",
        EXPERTS
        | GROUPS
        | yarn(1.0, 0.7)
        | {"topk_method": "group_limited_greedy", "routed_scaling_factor": 1.6}
        | {"attention_bias": True, "num_hidden_layers": 4},
    ),
    "deepseek_v3": ("DeepseekV3", EXPERTS | GROUPS | yarn(1.0, 1.0) | {"n_shared_experts": 1}),
    "deepseek_v3_plain_queries": (
        "DeepseekV3",
        EXPERTS | {"n_group": 1, "topk_group": 1, "q_lora_rank": None, "attention_bias": True},
    ),
    "glm4_moe_lite": ("Glm4MoeLite", EXPERTS | {"n_shared_experts": 1}),
    "minicpm3": (
        "MiniCPM3",
        SIZES | {"scale_emb": 3.0, "scale_depth": 0.9, "dim_model_base": 13},
    ),
    "deepseek_v2_wide": (
        "DeepseekV2",
        EXPERTS | WIDE | {"num_hidden_layers": 2, "tie_word_embeddings": True},
    ),
    "deepseek_v3_wide": (
        "DeepseekV3",
        EXPERTS
        | GROUPS
        | WIDE
        | {"num_hidden_layers": 5, "first_k_dense_replace": 3, "norm_topk_prob": False},
    ),
    "glm4_moe_lite_groups": ("Glm4MoeLite", EXPERTS | GROUPS | {"num_hidden_layers": 4}),
    "glm4_moe_lite_wide": ("Glm4MoeLite", EXPERTS | WIDE | {"tie_word_embeddings": True}),
    "minicpm3_wide": ("MiniCPM3", SIZES | WIDE | {"num_hidden_layers": 2}),
    "minicpm3_tied": (
        "MiniCPM3",
        SIZES
        | {"tie_word_embeddings": True, "attention_bias": True, "num_hidden_layers": 4}
        | {"scale_emb": 2.0, "scale_depth": 1.2, "dim_model_base": 32},
    ),
}


if __name__ == "__main__":
    make.CASES.clear()
    make.CASES.update(CASES)
    make.main("_latent")
