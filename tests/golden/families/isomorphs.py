"""Families that transformers has no class for, as other names of families that it has.

A case's checkpoint is renamed and rearranged into what another family stores, and its golden stays.
Baichuan 13B (ALiBi) and the head of Baichuan 2 have no such case; the oracle alone computes them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.golden.families.checkpoints import cases, tensors_of

Weights = dict[str, np.ndarray]
Config = dict[str, Any]
Rewritten = tuple[Config, Weights]


def renamed(tensors: Weights, *names: tuple[str, str]) -> Weights:
    """Other names: parts of them, in order."""
    found = {}
    for name, tensor in tensors.items():
        for old, new in names:
            name = name.replace(old, new)
        found[name] = tensor
    return found


def packed(tensors: Weights, into: str) -> Weights:
    """q, k and v of a layer in one tensor, one after another."""
    found = {}
    for name, w in tensors.items():
        if ".q_proj." in name:
            parts = [tensors[name.replace("q_proj", f"{kind}_proj")] for kind in "qkv"]
            found[name.replace("q_proj", into)] = np.concatenate(parts)
        elif ".k_proj." not in name and ".v_proj." not in name:
            found[name] = w
    return found


def aquila(config: Config, tensors: Weights) -> Rewritten:
    return config | {"architectures": ["AquilaForCausalLM"], "model_type": "aquila"}, tensors


def internlm(config: Config, tensors: Weights) -> Rewritten:
    bias = {"bias": config["attention_bias"], "model_type": "internlm"}
    config = {name: value for name, value in config.items() if name != "attention_bias"}
    return config | bias | {"architectures": ["InternLMForCausalLM"]}, tensors


def baichuan(config: Config, tensors: Weights) -> Rewritten:
    names = {"architectures": ["BaiChuanForCausalLM"], "model_type": "baichuan"}
    return config | names, packed(tensors, "W_pack")


def qwen(config: Config, tensors: Weights) -> Rewritten:
    own = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
    fields = {name: config[name] for name in (*own, "eos_token_id", "bos_token_id")} | {
        "architectures": ["QWenLMHeadModel"],
        "model_type": "qwen",
        "intermediate_size": 2 * config["intermediate_size"],
        "seq_length": config["max_position_embeddings"],
        "kv_channels": config["hidden_size"] // config["num_attention_heads"],
        "layer_norm_epsilon": config["rms_norm_eps"],
        "rotary_emb_base": config["rope_parameters"]["rope_theta"],
        "tie_word_embeddings": config["tie_word_embeddings"],
        "use_dynamic_ntk": True,
        "use_logn_attn": True,
    }
    return fields, renamed(
        packed(tensors, "c_attn"),
        ("model.embed_tokens", "transformer.wte"),
        ("model.norm", "transformer.ln_f"),
        ("model.layers.", "transformer.h."),
        ("input_layernorm", "ln_1"),
        ("post_attention_layernorm", "ln_2"),
        ("self_attn.c_attn", "attn.c_attn"),
        ("self_attn.o_proj", "attn.c_proj"),
        ("mlp.gate_proj", "mlp.w2"),
        ("mlp.up_proj", "mlp.w1"),
        ("mlp.down_proj", "mlp.c_proj"),
    )


LING = {
    "word_embeddings": "embed_tokens",
    "attention.dense": "self_attn.o_proj",
    "attention.query_layernorm": "self_attn.q_norm",
    "attention.key_layernorm": "self_attn.k_norm",
    "attention.query_key_value": "self_attn.query_key_value",
    "mlp.gate.expert_bias": "mlp.gate.e_score_correction_bias",
    "mlp.gate.": "block_sparse_moe.gate.",
    "mlp.experts.": "block_sparse_moe.experts.",
    ".gate_proj": ".w1",
    ".up_proj": ".w3",
    ".down_proj": ".w2",
}
_TO_LING = tuple((old, new) for new, old in LING.items())


def bailing_moe(config: Config, tensors: Weights) -> Rewritten:
    """Mixtral's weights of the chosen experts, which sum to one."""
    fields = {
        "architectures": ["BailingMoeForCausalLM"],
        "model_type": "bailing_moe",
        "num_experts": config["num_local_experts"],
        "moe_intermediate_size": config["intermediate_size"],
        "use_bias": False,
        "norm_topk_prob": True,
        "num_shared_experts": 0,
    }
    kept = {k: v for k, v in config.items() if k != "num_local_experts"}
    return kept | fields, renamed(packed(tensors, "query_key_value"), *_TO_LING)


def bailing_moe_v2(config: Config, tensors: Weights) -> Rewritten:
    """GLM-4.5's fields that Ling names otherwise; only q, k and v have a bias."""
    fields = {
        "architectures": ["BailingMoeV2ForCausalLM"],
        "model_type": "bailing_moe",
        "num_experts": config["n_routed_experts"],
        "num_shared_experts": config["n_shared_experts"],
        "use_qkv_bias": config["attention_bias"],
        "use_bias": False,
        "score_function": "sigmoid",
        "moe_router_enable_expert_bias": True,
    }
    gone = ("n_routed_experts", "n_shared_experts", "attention_bias")
    kept = {k: v for k, v in config.items() if k not in gone}
    return kept | fields, renamed(packed(tensors, "query_key_value"), *_TO_LING)


def minicpm(config: Config, tensors: Weights) -> Rewritten:
    """MiniCPM's factors follow from other numbers than Granite's."""
    fields = {
        "architectures": ["MiniCPMForCausalLM"],
        "model_type": "minicpm",
        "scale_emb": config["embedding_multiplier"],
        "scale_depth": config["residual_multiplier"] * config["num_hidden_layers"] ** 0.5,
        "dim_model_base": config["hidden_size"] / config["logits_scaling"],
    }
    gone = ("multiplier", "logits_scaling")
    kept = {name: value for name, value in config.items() if not name.endswith(gone)}
    return kept | fields, tensors


# Its name: the case it is made of, and how.
ISOMORPHS: dict[str, tuple[str, Callable[[Config, Weights], Rewritten]]] = {
    "aquila": ("llama", aquila),
    "baichuan": ("mistral_all", baichuan),
    "bailing_moe": ("mixtral_one", bailing_moe),
    "bailing_moe_v2": ("glm4_moe", bailing_moe_v2),
    "internlm": ("llama_one", internlm),
    "minicpm": ("granite_minicpm", minicpm),
    "qwen": ("qwen2_all", qwen),
}


def isomorph(name: str) -> tuple[str, Config, Weights]:
    """The case whose golden it has, its config.json and its tensors."""
    case, rewrite = ISOMORPHS[name]
    found = cases()[case]
    return case, *rewrite(found["config"], tensors_of(found))
