"""Llama and what is built like it: Mistral, Qwen 2 and 3, StarCoder 2, and those with experts."""

from typing import Any

from jax_engine.models.gguf.architecture import Architecture, Header, Undo
from jax_engine.models.gguf.rope import shortest
from jax_engine.weights.row_orders import rope_halves

# llama.cpp rotates neighbouring numbers of these: rows of q and k are in another order.
HALVES: dict[str, Undo] = {
    "self_attn.q_proj": lambda spec, q: rope_halves(q, spec.num_heads, spec.head_dim),
    "self_attn.k_proj": lambda spec, k: rope_halves(k, spec.num_kv_heads, spec.head_dim),
}


def llama(header: Header) -> dict[str, Any]:
    """Also Mistral, which has a window, and Mixtral, which has experts."""
    window = header.fields.sliding_window or None
    own = {
        "attention_bias": header.has("blk.0.attn_q.bias"),
        "mlp_bias": header.has("blk.0.ffn_gate.bias"),
        "sliding_window": window,
    }
    if header.fields.expert_count:
        return header.config("MixtralForCausalLM", own, local_experts(header))
    return header.config("MistralForCausalLM" if window else "LlamaForCausalLM", own)


def local_experts(header: Header) -> dict[str, Any]:
    """The numbers of experts, by Mixtral's names."""
    return {
        "num_local_experts": header.fields.expert_count,
        "num_experts_per_tok": header.fields.expert_used_count,
    }


def qwen2(header: Header, architecture: str = "Qwen2ForCausalLM", **own: Any) -> dict[str, Any]:
    uses = bool(header.fields.sliding_window)
    window = {"use_sliding_window": uses, "max_window_layers": 0}
    return header.config(architecture, header.windows, window, own)


def qwen3(header: Header) -> dict[str, Any]:
    return qwen2(header, "Qwen3ForCausalLM")


def qwen2moe(header: Header) -> dict[str, Any]:
    """The weights of the chosen experts are not renormalised."""
    shared = header.fields.expert_shared_feed_forward_length
    own = {"shared_expert_intermediate_size": shared} | experts(header, renormalise=False)
    return qwen2(header, "Qwen2MoeForCausalLM", **own)


def qwen3moe(header: Header) -> dict[str, Any]:
    return qwen2(header, "Qwen3MoeForCausalLM", **experts(header, renormalise=True))


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
    clip = {"clip_qkv": shortest(header.fields.clamp_kqv or 0.0) or None}
    return header.config("OlmoeForCausalLM", experts(header, renormalise=False), clip)


def starcoder2(header: Header) -> dict[str, Any]:
    """llama.cpp writes no window; all positions are attended to unless the file has one."""
    return header.config(
        "Starcoder2ForCausalLM",
        use_bias=header.has("blk.0.attn_q.bias"),
        sliding_window=header.fields.sliding_window or None,
    )


ARCHITECTURES = (
    Architecture("llama", llama, HALVES),
    Architecture("qwen2", qwen2),
    Architecture("qwen3", qwen3),
    Architecture("qwen2moe", qwen2moe),
    Architecture("qwen3moe", qwen3moe),
    Architecture("olmoe", olmoe),
    Architecture("starcoder2", starcoder2),
)
