"""GGUF files as llama.cpp's converter writes them, of tests/golden/families's tiny checkpoints.

It has its own tables and row orders, so that an error of the loader's is no error here. The real
converter needs PyTorch; its tensors were compared with these once, and were equal. It was not run
for qwen3moe and minicpm, and refuses StableLM's tiny head norms.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

Array = np.ndarray
TOP = {
    **dict.fromkeys(("model.embed_tokens", "gpt_neox.embed_in"), "token_embd"),
    **dict.fromkeys(("transformer.word_embeddings", "transformer.wte"), "token_embd"),
    "transformer.wpe": "position_embd",
    **dict.fromkeys(("model.norm", "gpt_neox.final_layer_norm"), "output_norm"),
    **dict.fromkeys(("transformer.ln_f", "model.final_layernorm"), "output_norm"),
    "transformer.word_embeddings_layernorm": "token_embd_norm",
    **dict.fromkeys(("lm_head", "embed_out"), "output"),
}
LAYER = {
    **dict.fromkeys(("input_layernorm", "ln_1", "ln_mlp"), "attn_norm"),
    "ln_attn": "attn_norm_2",
    **{f"self_attn.{name}_proj": f"attn_{name}" for name in "qkv"},
    **{f"self_attn.{name}_norm": f"attn_{name}_norm" for name in "qk"},
    "self_attn.qkv_proj": "attn_qkv",
    **dict.fromkeys(("attention.query_key_value", "self_attention.query_key_value"), "attn_qkv"),
    "attn.c_attn": "attn_qkv",
    **dict.fromkeys(("self_attn.o_proj", "attn.c_proj", "self_attn.dense"), "attn_output"),
    **dict.fromkeys(("attention.dense", "self_attention.dense"), "attn_output"),
    **dict.fromkeys(("post_attention_layernorm", "ln_2"), "ffn_norm"),
    "mlp.gate_proj": "ffn_gate",
    **dict.fromkeys(("mlp.up_proj", "mlp.dense_h_to_4h", "mlp.c_fc", "mlp.fc1"), "ffn_up"),
    "mlp.gate_up_proj": "ffn_up",
    **dict.fromkeys(("mlp.down_proj", "mlp.dense_4h_to_h", "mlp.c_proj", "mlp.fc2"), "ffn_down"),
    **dict.fromkeys(
        ("mlp.gate", "mlp.router", "block_sparse_moe.gate", "block_sparse_moe.router.layer"),
        "ffn_gate_inp",
    ),
    "block_sparse_moe.output_linear": "ffn_down_exps",
    "shared_mlp.output_linear": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    **{f"mlp.shared_expert.{name}_proj": f"ffn_{name}_shexp" for name in ("gate", "up", "down")},
}
NORMS_BEHIND = LAYER | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
EXPERTS = {
    **dict.fromkeys(("w1", "gate_proj"), "ffn_gate_exps"),
    **dict.fromkeys(("w3", "up_proj"), "ffn_up_exps"),
    **dict.fromkeys(("w2", "down_proj"), "ffn_down_exps"),
}
# llama.cpp rotates neighbouring numbers in these.
INTERLEAVED = ("llama", "granite", "granitemoe", "olmo", "smollm3", "minicpm")


def converted(
    config: Mapping[str, Any], tensors: Mapping[str, Array], arch: str
) -> dict[str, Array]:
    """The tensors under llama.cpp's names and in its layout."""
    out: dict[str, Array] = {}
    behind = arch in ("gemma2", "gemma3", "olmo2", "exaone4", "gpt-oss")
    layer_names = NORMS_BEHIND if behind else LAYER
    stacked: dict[str, dict[int, Array]] = {}
    for name, tensor in tensors.items():
        stem, suffix = name.rsplit(".", 1)
        if stem in TOP:
            out[f"{TOP[stem]}.{suffix}"] = _changed(stem, suffix, tensor, arch, config)
            continue
        found = re.fullmatch(
            r"(?:model\.layers|gpt_neox\.layers|transformer\.h)\.(\d+)\.(.+)", stem
        )
        assert found, name
        block, part = f"blk.{found[1]}", found[2]
        expert = re.fullmatch(r".+\.experts\.(\d+)\.(\w+)", part)
        head = re.fullmatch(r"self_attn\.([qk])_layernorm\.norms\.(\d+)", part)
        if expert:
            key = f"{block}.{EXPERTS[expert[2]]}.{suffix}"
            stacked.setdefault(key, {})[int(expert[1])] = tensor
        elif head:
            key = f"{block}.attn_{head[1]}_norm.{suffix}"
            stacked.setdefault(key, {})[int(head[2])] = tensor
        elif suffix == "sinks":
            out[f"{block}.attn_sinks.weight"] = tensor
        elif part == "mlp.experts":
            out |= {f"{block}.{key}": one for key, one in gpt_oss_experts(suffix, tensor).items()}
        elif part.endswith("input_linear"):
            which = "shexp" if part.startswith("shared") else "exps"
            gate, up = np.split(tensor, 2, axis=-2)
            out |= {
                f"{block}.ffn_gate_{which}.{suffix}": gate,
                f"{block}.ffn_up_{which}.{suffix}": up,
            }
        else:
            out[f"{block}.{layer_names[part]}.{suffix}"] = _changed(
                part, suffix, tensor, arch, config
            )
    for key, each in stacked.items():
        out[key] = np.stack([each[number] for number in range(len(each))])
    return out


def _changed(part: str, kind: str, tensor: Array, arch: str, config: Mapping[str, Any]) -> Array:
    """What the converter does to a tensor's numbers."""
    if arch.startswith("gemma") and part.endswith("norm"):
        return tensor + np.float32(1)
    if arch == "nemotron" and part.endswith("norm") and kind == "weight":
        return tensor + np.float32(1)
    if arch in INTERLEAVED and part.endswith(("q_proj", "k_proj")):
        return permuted(tensor, config[_HEADS[part[-6]]])
    if arch == "gpt2" and tensor.ndim == 2 and ".c_" in part:
        return tensor.T
    if part.endswith("query_key_value"):
        heads = config.get("num_attention_heads") or config["n_head"]
        groups = falcon_groups(config) if arch == "falcon" else heads
        return by_kind(tensor, groups, config["hidden_size"] // heads)
    return tensor


_HEADS = {"q": "num_attention_heads", "k": "num_key_value_heads"}


def permuted(weight: Array, heads: int) -> Array:
    """Rows in the order of llama.cpp's interleaved RoPE, as its converter writes Q and K."""
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def by_kind(tensor: Array, groups: int, size: int) -> Array:
    """All queries, all keys, all values, of a tensor that has them group by group."""
    grouped = tensor.reshape(groups, -1, size, *tensor.shape[1:])
    kinds = grouped[:, :-2], grouped[:, -2:-1], grouped[:, -1:]
    return np.concatenate([kind.reshape(-1, *tensor.shape[1:]) for kind in kinds])


def gpt_oss_experts(name: str, tensor: Array) -> dict[str, Array]:
    """Matrices are turned; gate and up, whose columns are in turns, are stored apart."""
    kind = "bias" if name.endswith("_bias") else "weight"
    turned = tensor if kind == "bias" else tensor.swapaxes(1, 2)
    if name.startswith("down"):
        return {f"ffn_down_exps.{kind}": turned}
    return {f"ffn_{part}_exps.{kind}": turned[:, i::2] for i, part in enumerate(("gate", "up"))}


def falcon_groups(config: Mapping[str, Any]) -> int:
    new = config["new_decoder_architecture"]
    return int(config["num_kv_heads"]) if new else 1


def metadata(config: Mapping[str, Any], arch: str) -> dict[str, Any]:
    """The metadata, without the architecture's name in front; numbers of float are float32."""
    get = config.get
    heads = get("num_attention_heads") or get("n_head")
    width = get("hidden_size") or get("n_embd")
    kv = get("num_key_value_heads", heads)
    rope = get("rope_parameters") or {}
    full = rope.get("full_attention", rope)
    found: dict[str, Any] = {
        "block_count": get("num_hidden_layers") or get("n_layer"),
        "context_length": get("max_position_embeddings")
        or get("n_positions")
        or get("seq_length", 2048),
        "embedding_length": width,
        "feed_forward_length": get("intermediate_size") or get("ffn_hidden_size") or 4 * width,
        "attention.head_count": heads,
        "rope.freq_base": full.get("rope_theta") or get("rope_theta"),
        "attention.layer_norm_rms_epsilon": get("rms_norm_eps"),
        "attention.layer_norm_epsilon": get("layer_norm_eps")
        or get("layer_norm_epsilon")
        or get("norm_epsilon")
        or get("norm_eps"),
        "attention.key_length": get("head_dim"),
        "attention.sliding_window": get("sliding_window"),
        "expert_count": get("num_local_experts") or get("num_experts"),
        "expert_used_count": get("num_experts_per_tok"),
    }
    if arch != "gptneox":
        found["attention.head_count_kv"] = kv
    found |= _own(config, arch, full)
    return {key: value for key, value in found.items() if value is not None}


def _own(config: Mapping[str, Any], arch: str, rope: Mapping[str, Any]) -> dict[str, Any]:
    """What the architecture has of its own."""
    get = config.get
    size = (get("hidden_size") or 0) // (get("num_attention_heads") or 1)
    rotated = int(rope.get("partial_rotary_factor", 1) * size)
    if arch in ("gemma2", "gemma3"):
        return {
            "attention.scale": config["query_pre_attn_scalar"] ** -0.5,  # a key of Granite's
            "attn_logit_softcapping": get("attn_logit_softcapping"),
            "final_logit_softcapping": get("final_logit_softcapping"),
        }
    if arch == "gptneox":
        return {
            "rope.dimension_count": rotated,
            "use_parallel_residual": np.bool_(config["use_parallel_residual"]),
        }
    if arch == "falcon":
        return {"attention.head_count_kv": falcon_groups(config)}
    if arch == "phi3":
        longrope = rope["rope_type"] == "longrope"
        return {
            "rope.dimension_count": rotated,
            "rope.scaling.original_context_length": rope.get("original_max_position_embeddings"),
            "rope.scaling.type": "longrope" if longrope else None,
            "rope.scaling.attn_factor": _attention_factor(config, rope) if longrope else None,
        }
    if arch in ("phi2", "stablelm", "nemotron"):
        return {
            "rope.dimension_count": rotated,
            "use_parallel_residual": np.bool_(get("use_parallel_residual", True)),
        }
    if arch in ("olmo2", "exaone4") and get("sliding_window"):
        pattern = [kind == "sliding_attention" for kind in config["layer_types"]]
        return {"attention.sliding_window_pattern": pattern}
    if arch in ("command-r", "cohere2"):
        return {"logit_scale": get("logit_scale"), "rope.scaling.type": "none"}
    if arch == "gpt-oss":
        return {"expert_feed_forward_length": config["intermediate_size"]} | _yarn(rope)
    if arch == "minicpm":
        return {
            "embedding_scale": get("scale_emb"),
            "residual_scale": config["scale_depth"] / config["num_hidden_layers"] ** 0.5,
            "logit_scale": config["hidden_size"] / config["dim_model_base"],
        }
    if arch == "starcoder":
        return {"attention.head_count_kv": 1 if config["multi_query"] else None}
    if arch == "qwen2":
        pattern = [kind == "sliding_attention" for kind in config["layer_types"]]
        return {"attention.sliding_window_pattern": pattern}  # llama.cpp's key for other models
    if arch == "olmo":
        return {"attention.layer_norm_epsilon": 1e-5, "attention.clamp_kqv": get("clip_qkv")}
    return {
        "attention.scale": get("attention_multiplier"),
        "embedding_scale": get("embedding_multiplier"),
        "residual_scale": get("residual_multiplier"),
        "logit_scale": get("logits_scaling"),
        "attention.clamp_kqv": get("clip_qkv"),
        "expert_feed_forward_length": get("moe_intermediate_size"),
        "expert_shared_feed_forward_length": get("shared_expert_intermediate_size")
        or get("shared_intermediate_size"),
    }


def _yarn(rope: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": rope["factor"],
        "rope.scaling.original_context_length": rope["original_max_position_embeddings"],
        "rope.scaling.yarn_beta_fast": rope["beta_fast"],
        "rope.scaling.yarn_beta_slow": rope["beta_slow"],
    }


def _attention_factor(config: Mapping[str, Any], rope: Mapping[str, Any]) -> float:
    original = rope["original_max_position_embeddings"]
    stretch = config["max_position_embeddings"] / original
    return float(np.sqrt(1 + np.log(stretch) / np.log(original))) if stretch > 1 else 1.0


def write_case(
    path: Path,
    case: Mapping[str, Any],
    tensors: Mapping[str, Array],
    arch: str,
    tokenizer: Mapping[str, Any] | None = None,
) -> Path:
    """Writes a tiny checkpoint as a GGUF file, with or without the fields of a tokenizer."""
    config = case["config"]
    out = converted(config, tensors, arch)
    rope = config.get("rope_parameters") or {}
    for kind in ("long", "short"):
        if f"{kind}_factor" in rope:
            out[f"rope_factors_{kind}.weight"] = np.array(rope[f"{kind}_factor"], np.float32)
    ends = {
        f"tokenizer.ggml.{name}_token_id": config[f"{name}_token_id"] for name in ("bos", "eos")
    }
    fields = {f"{arch}.{key}": value for key, value in metadata(config, arch).items()}
    write_gguf_file(path, arch, fields | (tokenizer or ends), out)
    return path


def write_gguf_file(
    path: Path,
    arch: str,
    fields: Mapping[str, Any],
    tensors: Mapping[str, Array],
    kinds: Mapping[str, gguf.GGMLQuantizationType] | None = None,
) -> None:
    """Writes metadata and tensors; the value's type says the field's.

    Args:
        kinds: the types of tensors that are given as bytes.
    """
    writer = gguf.GGUFWriter(path, arch)
    adders = {
        str: writer.add_string, bool: writer.add_bool, np.bool_: writer.add_bool,
        float: writer.add_float32, int: writer.add_uint32, list: writer.add_array,
    }  # fmt: skip
    for key, value in fields.items():
        adders[type(value)](key, value)
    for name, tensor in tensors.items():
        kind = (kinds or {}).get(name)
        writer.add_tensor(name, np.ascontiguousarray(tensor), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
