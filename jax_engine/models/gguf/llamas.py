"""Llama and what is built like it: Mistral, Qwen 2 and 3, StarCoder 2, and those with experts."""

from typing import Any

from jax_engine.models.gguf.architecture import Architecture, Header, Undo
from jax_engine.weights.row_orders import rope_halves

HALVES: dict[str, Undo] = {
    "self_attn.q_proj": lambda spec, q: rope_halves(q, spec.num_heads, spec.head_dim),
    "self_attn.k_proj": lambda spec, k: rope_halves(k, spec.num_kv_heads, spec.head_dim),
}


def llama(header: Header) -> dict[str, Any]:
    """Also Mistral, which has a window, and Mixtral, which has experts."""
    config = header.common | {
        "attention_bias": header.has("blk.0.attn_q.bias"),
        "mlp_bias": header.has("blk.0.ffn_gate.bias"),
        "sliding_window": header.fields.sliding_window or None,
    }
    if header.fields.expert_count:
        return config | {"architectures": ["MixtralForCausalLM"]} | local_experts(header)
    name = "MistralForCausalLM" if config["sliding_window"] else "LlamaForCausalLM"
    return config | {"architectures": [name]}


def local_experts(header: Header) -> dict[str, Any]:
    """The numbers of experts, by Mixtral's names."""
    return {
        "num_local_experts": header.fields.expert_count,
        "num_experts_per_tok": header.fields.expert_used_count,
    }


def qwen2(header: Header) -> dict[str, Any]:
    windows = header.windows
    uses = windows["sliding_window"] is not None
    return (
        header.common
        | windows
        | {
            "architectures": ["Qwen2ForCausalLM"],
            "use_sliding_window": uses,
            "max_window_layers": 0,
        }
    )


def qwen3(header: Header) -> dict[str, Any]:
    return qwen2(header) | {"architectures": ["Qwen3ForCausalLM"]}


def qwen2moe(header: Header) -> dict[str, Any]:
    """The weights of the chosen experts are not renormalised."""
    return (
        qwen2(header)
        | experts(header, renormalise=False)
        | {
            "architectures": ["Qwen2MoeForCausalLM"],
            "shared_expert_intermediate_size": header.fields.expert_shared_feed_forward_length,
        }
    )


def qwen3moe(header: Header) -> dict[str, Any]:
    return (
        qwen3(header)
        | experts(header, renormalise=True)
        | {"architectures": ["Qwen3MoeForCausalLM"]}
    )


def experts(header: Header, *, renormalise: bool) -> dict[str, Any]:
    """The experts, by Qwen's names.

    Args:
        renormalise: what holds unless the file says otherwise.
    """
    fields = header.fields
    said = fields.expert_weights_norm
    return {
        "num_experts": fields.expert_count,
        "num_experts_per_tok": fields.expert_used_count,
        "moe_intermediate_size": fields.expert_feed_forward_length,
        "norm_topk_prob": renormalise if said is None else said,
    }


def olmoe(header: Header) -> dict[str, Any]:
    config = header.common | experts(header, renormalise=False)
    return config | {
        "architectures": ["OlmoeForCausalLM"],
        "clip_qkv": header.fields.clamp_kqv or None,
    }


def starcoder2(header: Header) -> dict[str, Any]:
    """llama.cpp writes no window; all positions are attended to unless the file has one."""
    return header.common | {
        "architectures": ["Starcoder2ForCausalLM"],
        "use_bias": header.has("blk.0.attn_q.bias"),
        "sliding_window": header.fields.sliding_window or None,
    }


ARCHITECTURES = (
    Architecture("llama", llama, HALVES),
    Architecture("qwen2", qwen2),
    Architecture("qwen3", qwen3),
    Architecture("qwen2moe", qwen2moe),
    Architecture("qwen3moe", qwen3moe),
    Architecture("olmoe", olmoe),
    Architecture("starcoder2", starcoder2),
)
