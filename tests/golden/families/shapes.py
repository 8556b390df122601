"""Further shapes of each family: as many KV heads as heads, or one; odd widths; other switches.

Each case turns several switches of its family that the first cases leave as they are. Transformers
ignores MPT's expansion_ratio and alibi_bias_max, and Gemma 3's attn_logit_softcapping.
"""

from typing import Any

from tests.golden.families.first_cases import (
    FULL,
    GRANITE,
    GROWING,
    LLAMA,
    QWEN_MOE,
    SLIDING,
    TOKENS,
    Cases,
)

TIED: dict[str, Any] = {"tie_word_embeddings": True}
UNTIED: dict[str, Any] = {"tie_word_embeddings": False}
BIASED: dict[str, Any] = {"attention_bias": True}
# As many KV heads as heads, or one for all of them.
ALL: dict[str, Any] = LLAMA | {
    "vocab_size": 64,
    "hidden_size": 24,
    "intermediate_size": 37,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
}
ONE: dict[str, Any] = LLAMA | {
    "vocab_size": 71,
    "hidden_size": 40,
    "intermediate_size": 29,
    "num_hidden_layers": 4,
    "num_attention_heads": 5,
    "num_key_value_heads": 1,
}
GPT2_ALL = TOKENS | {"vocab_size": 64, "n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 64}
GPT2_MORE = TOKENS | {"vocab_size": 71, "n_embd": 40, "n_layer": 4, "n_head": 5, "n_positions": 64}
IN_TURN = {"layer_types": [SLIDING, FULL, FULL, SLIDING]}
LINEAR = {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0}
PLAIN = {"rope_type": "default", "rope_theta": 300.0}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 500.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
}
OTHER_GRANITE = {
    "embedding_multiplier": 0.5,
    "residual_multiplier": 1.4,
    "attention_multiplier": 0.6,
    "logits_scaling": 0.7,
}


def partly(factor: float, **more: Any) -> dict[str, Any]:
    """A rotary embedding of a part of each head."""
    return {"rope_parameters": PLAIN | {"partial_rotary_factor": factor} | more}


def rope(**fields: Any) -> dict[str, Any]:
    return {"rope_parameters": fields}


# The same for all layers of a family with Llama's fields.
DENSE: Cases = {
    "llama_all": ("Llama", ALL | TIED | BIASED | {"mlp_bias": True} | rope(**LINEAR)),
    "llama_one": ("Llama", ONE | BIASED | {"head_dim": 16} | rope(**LLAMA3)),
    "mistral_all": ("Mistral", ALL | TIED | {"sliding_window": None}),
    "mistral_one": ("Mistral", ONE | {"sliding_window": 3, "head_dim": 12}),
    "ministral3_all": (
        "Ministral3",
        ALL | TIED | rope(**YARN, llama_4_scaling_beta=0.0, mscale=1.0, mscale_all_dim=0.5),
    ),
    "ministral3_one": (
        "Ministral3",
        ONE
        | {"sliding_window": 6, "head_dim": 16}
        | rope(**GROWING | {"factor": 8.0, "original_max_position_embeddings": 8}),
    ),
    "qwen2_all": ("Qwen2", ALL | UNTIED | {"use_sliding_window": False}),
    "qwen2_one": (
        "Qwen2",
        ONE | TIED | IN_TURN | {"use_sliding_window": True, "sliding_window": 4},
    ),
    "qwen3_all": ("Qwen3", ALL | TIED | BIASED | {"head_dim": 8}),
    "qwen3_one": (
        "Qwen3",
        ONE
        | {"head_dim": 16, "use_sliding_window": True, "sliding_window": 4}
        | {"max_window_layers": 2},
    ),
    "phi3_all": ("Phi3", ALL | TIED | partly(0.75)),
    "phi3_one": ("Phi3", ONE | {"sliding_window": 5} | partly(1.0)),
    "granite_all": (
        "Granite",
        ALL | TIED | BIASED | OTHER_GRANITE | {"mlp_bias": True},
    ),
    # What MiniCPM computes, whose isomorph it is; see isomorphs.py.
    "granite_minicpm": (
        "Granite",
        LLAMA
        | TIED
        | {"embedding_multiplier": 12.0, "residual_multiplier": 1.4 / 3**0.5}
        | {"attention_multiplier": 8**-0.5, "logits_scaling": 4.0},
    ),
    "granite_one": ("Granite", ONE | UNTIED | GRANITE | rope(**LINEAR)),
    "smollm3_all": (
        "SmolLM3",
        ALL | UNTIED | BIASED | {"mlp_bias": True, "no_rope_layers": [0, 1]},
    ),
    "smollm3_one": (
        "SmolLM3",
        ONE | TIED | {"no_rope_layer_interval": 2, "use_sliding_window": True, "sliding_window": 5},
    ),
    "olmo_all": ("Olmo", ALL | TIED | BIASED),
    "olmo_one": ("Olmo", ONE | {"clip_qkv": 0.5}),
    "olmo2_all": ("Olmo2", ALL | TIED | BIASED),
    "olmo2_one": ("Olmo2", ONE | rope(**YARN)),
    "olmo3_all": (
        "Olmo3",
        ALL | TIED | BIASED | {"layer_types": [SLIDING] * 2, "sliding_window": 6},
    ),
    "olmo3_one": (
        "Olmo3",
        ONE
        | {"sliding_window": 3}
        | {"rope_parameters": {FULL: YARN | {"attention_factor": 1.2}, SLIDING: PLAIN}},
    ),
    "stablelm_one": (
        "StableLm",
        ONE | TIED | {"qk_layernorm": True, "use_qkv_bias": True} | partly(0.5),
    ),
    "starcoder2_all": ("Starcoder2", ALL | UNTIED | {"use_bias": False}),
    "starcoder2_one": ("Starcoder2", ONE | TIED | {"sliding_window": 4, "hidden_act": "gelu"}),
    "phi_all": ("Phi", ALL | {"hidden_act": "gelu"} | partly(0.5)),
    "phi_one": ("Phi", ONE | partly(0.25)),
    "nemotron_all": ("Nemotron", ALL | TIED | BIASED | {"mlp_bias": True} | partly(0.25)),
    "nemotron_one": ("Nemotron", ONE | {"head_dim": 16} | partly(1.0)),
    "cohere_all": ("Cohere", ALL | {"logit_scale": 2.0} | rope(**LINEAR)),
    "cohere_one": (
        "Cohere",
        ONE | UNTIED | BIASED | {"use_qk_norm": True, "logit_scale": 0.3},
    ),
    "cohere2_all": (
        "Cohere2",
        ALL | UNTIED | BIASED | {"layer_types": [SLIDING] * 2, "sliding_window": 6},
    ),
    "cohere2_one": ("Cohere2", ONE | {"sliding_window": 3, "logit_scale": 0.5}),
    "glm_all": ("Glm", ALL | TIED | {"head_dim": 8, "attention_bias": False}),
    "glm_one": ("Glm", ONE | BIASED | {"head_dim": 16} | partly(0.25)),
    "glm4_all": ("Glm4", ALL | TIED | {"head_dim": 8, "attention_bias": False}),
    "glm4_one": ("Glm4", ONE | BIASED | {"head_dim": 16} | partly(0.25)),
    "gemma_all": ("Gemma", ALL | UNTIED | BIASED | {"head_dim": 8}),
    "gemma_one": ("Gemma", ONE | {"head_dim": 16} | rope(**PLAIN)),
    "gemma2_all": (
        "Gemma2",
        ALL
        | UNTIED
        | BIASED
        | {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 6}
        | {"attn_logit_softcapping": None, "final_logit_softcapping": None},
    ),
    "gemma2_one": (
        "Gemma2",
        ONE
        | IN_TURN
        | {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 3}
        | {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 9.0},
    ),
    "gemma3_all": (
        "Gemma3Text",
        ALL
        | UNTIED
        | BIASED
        | {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 6}
        | {"final_logit_softcapping": 7.0},
    ),
    "gemma3_one": (
        "Gemma3Text",
        ONE
        | IN_TURN
        | {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 3}
        | {"rope_parameters": {FULL: LINEAR, SLIDING: PLAIN}},
    ),
    "exaone4_all": (
        "Exaone4",
        ALL | TIED | {"head_dim": 8, "sliding_window": None, "layer_types": [FULL] * 2},
    ),
    "exaone4_one": (
        "Exaone4",
        ONE | {"head_dim": 8, "sliding_window": 3, "sliding_window_pattern": 2},
    ),
}
# Names of their own for the fields.
OWN_NAMES: Cases = {
    "gpt_neox_tied": (
        "GPTNeoX",
        ALL | TIED | {"hidden_act": "gelu_new"} | partly(1.0),
    ),
    "gptj_odd": ("GPTJ", GPT2_ALL | {"rotary_dim": 8, "n_inner": 37}),
    "gptj_deeper": ("GPTJ", GPT2_MORE | {"rotary_dim": 2, "activation_function": "gelu"}),
    "gpt2_odd": (
        "GPT2",
        GPT2_ALL | UNTIED | {"n_inner": 37, "scale_attn_weights": False},
    ),
    "gpt2_deeper": ("GPT2", GPT2_MORE | {"activation_function": "relu"}),
    "gpt_bigcode_odd": ("GPTBigCode", GPT2_MORE | UNTIED | {"n_inner": 29}),
    "opt_odd": (
        "OPT",
        TOKENS
        | UNTIED
        | {"vocab_size": 64, "hidden_size": 30, "num_attention_heads": 5, "ffn_dim": 37}
        | {"num_hidden_layers": 2, "word_embed_proj_dim": 30, "enable_bias": False}
        | {"max_position_embeddings": 64, "pad_token_id": 0},
    ),
    "opt_deeper": (
        "OPT",
        TOKENS
        | {"vocab_size": 71, "hidden_size": 24, "num_attention_heads": 3, "ffn_dim": 29}
        | {"num_hidden_layers": 4, "word_embed_proj_dim": 24, "activation_function": "gelu"}
        | {"max_position_embeddings": 64, "pad_token_id": 0},
    ),
    "bloom_odd": (
        "Bloom",
        TOKENS | UNTIED | {"vocab_size": 64, "hidden_size": 24, "n_layer": 2, "n_head": 3},
    ),
    "bloom_deeper": (
        "Bloom",
        TOKENS | {"vocab_size": 71, "hidden_size": 40, "n_layer": 4, "n_head": 5},
    ),
    "mpt_odd": (
        "Mpt",
        TOKENS
        | {"vocab_size": 64, "d_model": 24, "n_layers": 2, "n_heads": 3, "max_seq_len": 64}
        | {"attn_config": {"softmax_scale": 0.6}},
    ),
    "mpt_deeper": (
        "Mpt",
        TOKENS | {"vocab_size": 71, "d_model": 40, "n_layers": 4, "n_heads": 5, "max_seq_len": 64},
    ),
    "falcon_11b": (
        "Falcon",
        TOKENS
        | UNTIED
        | {"vocab_size": 64, "hidden_size": 24, "num_hidden_layers": 2, "bias": True}
        | {"num_attention_heads": 3, "num_kv_heads": 3, "ffn_hidden_size": 37}
        | {"new_decoder_architecture": True, "num_ln_in_parallel_attn": 1},
    ),
    "falcon_in_turn": (
        "Falcon",
        TOKENS
        | {"vocab_size": 71, "hidden_size": 40, "num_hidden_layers": 4}
        | {"num_attention_heads": 5, "parallel_attn": False, "ffn_hidden_size": 29},
    ),
}
EXPERTS: Cases = {
    "mixtral_all": (
        "Mixtral",
        ALL | TIED | {"num_local_experts": 3, "num_experts_per_tok": 1, "sliding_window": 6},
    ),
    "mixtral_one": (
        "Mixtral",
        ONE | {"num_local_experts": 4, "num_experts_per_tok": 3, "head_dim": 16},
    ),
    "qwen2_moe_all": (
        "Qwen2Moe",
        ALL
        | TIED
        | {"num_experts": 4, "num_experts_per_tok": 3, "moe_intermediate_size": 17}
        | {"shared_expert_intermediate_size": 9, "mlp_only_layers": [1], "qkv_bias": False}
        | {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 2},
    ),
    "qwen3_moe_all": (
        "Qwen3Moe",
        ALL
        | TIED
        | BIASED
        | QWEN_MOE
        | {"head_dim": 8, "norm_topk_prob": False}
        | {"use_sliding_window": True, "sliding_window": 5},
    ),
    "qwen3_moe_one": (
        "Qwen3Moe",
        ONE
        | {"num_experts": 3, "num_experts_per_tok": 3, "moe_intermediate_size": 11}
        | {"head_dim": 16, "norm_topk_prob": True, "decoder_sparse_step": 2},
    ),
    "olmoe_all": (
        "Olmoe",
        ALL | TIED | BIASED | {"num_experts": 5, "num_experts_per_tok": 2, "norm_topk_prob": True},
    ),
    "olmoe_one": ("Olmoe", ONE | {"num_experts": 3, "num_experts_per_tok": 1}),
    "granitemoe_all": (
        "GraniteMoe",
        ALL | BIASED | GRANITE | {"num_local_experts": 3, "num_experts_per_tok": 3},
    ),
    "granitemoe_one": (
        "GraniteMoe",
        ONE | TIED | BIASED | OTHER_GRANITE | {"num_local_experts": 4, "num_experts_per_tok": 1},
    ),
    "glm4_moe_all": (
        "Glm4Moe",
        ALL
        | TIED
        | {"head_dim": 8, "n_routed_experts": 6, "num_experts_per_tok": 3}
        | {"moe_intermediate_size": 11, "n_shared_experts": 2, "first_k_dense_replace": 0}
        | {"n_group": 3, "topk_group": 2, "norm_topk_prob": False},
    ),
    "glm4_moe_one": (
        "Glm4Moe",
        ONE
        | BIASED
        | {"head_dim": 16, "use_qk_norm": True, "n_routed_experts": 4, "num_experts_per_tok": 2}
        | {"moe_intermediate_size": 11, "first_k_dense_replace": 2, "routed_scaling_factor": 0.7}
        | {"n_group": 1, "topk_group": 1}
        | partly(0.25),
    ),
    "gpt_oss_all": (
        "GptOss",
        ALL
        | TIED
        | {"head_dim": 8, "num_local_experts": 3, "num_experts_per_tok": 1, "sliding_window": 3}
        | rope(**PLAIN),
    ),
    "gpt_oss_one": (
        "GptOss",
        ONE
        | IN_TURN
        | {"head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 3}
        | {"attention_bias": False, "sliding_window": 6},
    ),
}
SHAPES: Cases = DENSE | OWN_NAMES | EXPERTS
