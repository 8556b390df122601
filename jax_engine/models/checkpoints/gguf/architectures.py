"""The architectures of llama.cpp whose files are read: a declaration for each.

First come Llama and what is built like it: Mistral, Qwen 2 and 3, StarCoder 2, and those with
experts. Gemma 1 to 3 follow: llama.cpp stores their norms plus one, which Hugging Face's layout
lacks. Granite 3 has factors as metadata; its experts' gate and up are stored apart.

NeoX, BLOOM, Falcon, Phi-3, GPT-2 and StarCoder have q, k and v in one tensor. llama.cpp stores all
queries, then all keys, then all values, whatever the original has.

The rest are OLMo 1 to 3, SmolLM 3, EXAONE 4, Cohere, StableLM, Phi-2, Nemotron, MiniCPM and
gpt-oss.
"""

from typing import Any

from jax_engine.errors import ConfigError
from jax_engine.model_spec import ModelSpec
from jax_engine.models.checkpoints.file_schema import short
from jax_engine.models.checkpoints.gguf.gguf_file import GgufFile
from jax_engine.models.checkpoints.gguf.header import Architecture, Header, Undo, shortest
from jax_engine.weights.transforms import (
    AddOne,
    Concatenate,
    Declaration,
    Rows,
    Transpose,
    regrouped,
    rope_halves,
)

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
    declared = fields.expert_weights_norm
    return {
        "num_experts": fields.expert_count,
        "num_experts_per_tok": fields.expert_used_count,
        "moe_intermediate_size": fields.expert_feed_forward_length,
        "norm_topk_prob": renormalise if declared is None else declared,
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


LLAMAS = (
    Architecture("llama", llama, HALVES),
    Architecture("qwen2", qwen2),
    Architecture("qwen3", qwen3),
    Architecture("qwen2moe", qwen2moe),
    Architecture("qwen3moe", qwen3moe),
    Architecture("olmoe", olmoe),
    Architecture("starcoder2", starcoder2),
)


NORMS: dict[str, Undo] = {"norm": lambda spec, stored: AddOne(stored, -1)}


def gemma(header: Header) -> dict[str, Any]:
    return header.config("GemmaForCausalLM")


def gemma2(header: Header) -> dict[str, Any]:
    return header.config(
        "Gemma2ForCausalLM",
        header.windows,
        query_pre_attn_scalar=_query_scalar(header, 46),
        attn_logit_softcapping=shortest(header.fields.attention_cap or 50.0),
        final_logit_softcapping=shortest(header.fields.logits_cap or 30.0),
    )


def gemma3(header: Header) -> dict[str, Any]:
    """Layers with a window have a RoPE of their own, which is never scaled."""
    return header.config(
        "Gemma3ForCausalLM",
        header.windows,
        query_pre_attn_scalar=_query_scalar(header, 62),
        final_logit_softcapping=header.fields.logits_cap,
        rope_local_base_freq=shortest(header.fields.freq_base_window),
    )


def _query_scalar(header: Header, largest: int) -> float:
    """The head's size, but for the models of 27B: they are known by their number of layers."""
    fields = header.fields
    if fields.attention_scale is not None:
        return float(fields.attention_scale**-2.0)
    if fields.block_count == largest:
        return fields.embedding_length / fields.head_count
    return header.head_dim


GEMMAS = (
    Architecture("gemma", gemma, NORMS),
    Architecture("gemma2", gemma2, NORMS),
    Architecture("gemma3", gemma3, NORMS),
)


def granite(header: Header) -> dict[str, Any]:
    fields = header.fields
    factors = {
        "attention_multiplier": fields.attention_scale,
        "embedding_multiplier": fields.embedding_scale,
        "residual_multiplier": fields.residual_scale,
        "logits_scaling": fields.logit_scale,
    }
    given = {name: shortest(value) for name, value in factors.items() if value is not None}
    return header.config("GraniteForCausalLM", given)


def granitemoe(header: Header) -> dict[str, Any]:
    config = granite(header) | local_experts(header)
    return config | {
        "architectures": ["GraniteMoeSharedForCausalLM"],
        "shared_intermediate_size": header.fields.expert_shared_feed_forward_length or 0,
    }


def _experts(spec: ModelSpec, stored: str) -> Declaration:
    del stored
    return gate_up("exps", "weight", spec.experts[0].expert.width, axis=1)


def _shared(spec: ModelSpec, stored: str) -> Declaration:
    del stored
    shared = spec.experts[0].shared
    return gate_up("shexp", "weight", shared.width if shared else 0, axis=0)


def gate_up(which: str, kind: str, width: int, *, axis: int) -> Concatenate:
    """Gate, then up, which are stored apart.

    Args:
        which: "exps" of the experts, "shexp" of the network that all tokens use.
    """
    parts = [f"blk.{{layer}}.ffn_{name}_{which}.{kind}" for name in ("gate", "up")]
    return Concatenate(parts, sizes=(width, width), axis=axis)


GRANITES = (
    Architecture("granite", granite, HALVES),
    Architecture(
        "granitemoe",
        granitemoe,
        HALVES
        | {
            "block_sparse_moe.input_linear.weight": _experts,
            "shared_mlp.input_linear.weight": _shared,
        },
    ),
)


def by_group(spec: ModelSpec, qkv: str) -> Rows:
    """Rows of each group of heads together: NeoX's and BLOOM's groups are single heads."""
    queries = spec.num_heads // spec.num_kv_heads
    return regrouped(qkv, spec.num_kv_heads, (queries, 1, 1), spec.head_dim)


def gptneox(header: Header) -> dict[str, Any]:
    parallel = header.fields.parallel_residual
    return header.config(
        "GPTNeoXForCausalLM",
        use_parallel_residual=True if parallel is None else parallel,
        attention_bias=header.has("blk.0.attn_qkv.bias"),
        partial_rotary_factor=header.rotated_part,
    )


def bloom(header: Header) -> dict[str, Any]:
    fields = header.fields
    return header.config(
        "BloomForCausalLM",
        n_layer=fields.block_count,
        n_head=fields.head_count,
        seq_length=fields.context_length,
    )


def falcon(header: Header) -> dict[str, Any]:
    """All in the newer form: Falcon 7B is one group of heads with one norm."""
    return header.config(
        "FalconForCausalLM",
        num_kv_heads=header.kv_heads,
        ffn_hidden_size=header.fields.feed_forward_length,
        new_decoder_architecture=True,
        num_ln_in_parallel_attn=2 if header.has("blk.0.attn_norm_2.weight") else 1,
        bias=header.has("blk.0.attn_qkv.bias"),
    )


def phi3(header: Header) -> dict[str, Any]:
    """Its fused tensors are in Hugging Face's order. A window of 0 is none."""
    return header.config(
        "Phi3ForCausalLM",
        partial_rotary_factor=header.rotated_part,
        sliding_window=header.fields.sliding_window or None,
    )


def gpt2(header: Header, architecture: str = "GPT2LMHeadModel", **own: Any) -> dict[str, Any]:
    fields = header.fields
    sizes = {
        "n_embd": fields.embedding_length,
        "n_layer": fields.block_count,
        "n_head": fields.head_count,
        "n_positions": fields.context_length,
        "n_inner": fields.feed_forward_length,
    }
    return header.config(architecture, sizes, own)


def starcoder(header: Header) -> dict[str, Any]:
    """All heads share one key and value."""
    multi, activation = header.kv_heads == 1, "gelu_pytorch_tanh"
    return gpt2(header, "GPTBigCodeForCausalLM", multi_query=multi, activation_function=activation)


QKV: dict[str, Undo] = {"query_key_value": by_group}
BLOOM: dict[str, Undo] = {  # names that the gguf package knows in another form only
    "word_embeddings_layernorm.weight": lambda *_: "token_embd_norm.weight",
    "word_embeddings_layernorm.bias": lambda *_: "token_embd_norm.bias",
    "post_attention_layernorm.weight": lambda *_: "blk.{layer}.ffn_norm.weight",
    "post_attention_layernorm.bias": lambda *_: "blk.{layer}.ffn_norm.bias",
}
TURNED: dict[str, Undo] = dict.fromkeys(
    ("c_attn.weight", "c_proj.weight", "c_fc.weight"), lambda spec, stored: Transpose(stored)
)
FUSED = (
    Architecture("gptneox", gptneox, QKV),
    Architecture("bloom", bloom, QKV | BLOOM),
    Architecture("falcon", falcon, QKV),
    Architecture("phi3", phi3),
    Architecture("gpt2", gpt2, TURNED),
    Architecture("starcoder", starcoder),
)


def olmo(header: Header) -> dict[str, Any]:
    return header.config(
        "OlmoForCausalLM", clip_qkv=shortest(header.fields.clamp_kqv or 0.0) or None
    )


def olmo2(header: Header) -> dict[str, Any]:
    """Also OLMo 3, which has windows."""
    name = "Olmo3ForCausalLM" if header.fields.sliding_window else "Olmo2ForCausalLM"
    return header.config(name, header.windows)


def smollm3(header: Header) -> dict[str, Any]:
    """Each fourth layer does not rotate: files do not say so."""
    return header.config("SmolLM3ForCausalLM")


def exaone4(header: Header) -> dict[str, Any]:
    return header.config("Exaone4ForCausalLM", header.windows)


def command_r(header: Header, architecture: str = "CohereForCausalLM") -> dict[str, Any]:
    """q and k are in neighbouring pairs in both layouts."""
    return header.config(
        architecture,
        header.windows,
        logit_scale=shortest(header.fields.logit_scale or 0.0625),
        use_qk_norm=header.has("blk.0.attn_q_norm.weight"),
    )


def cohere2(header: Header) -> dict[str, Any]:
    return command_r(header, "Cohere2ForCausalLM")


def stablelm(header: Header) -> dict[str, Any]:
    """Layers with parallel parts have one norm."""
    return header.config(
        "StableLmForCausalLM",
        partial_rotary_factor=header.rotated_part,
        use_qkv_bias=header.has("blk.0.attn_q.bias"),
        qk_layernorm=header.has("blk.0.attn_q_norm.weight"),
        use_parallel_residual=not header.has("blk.0.ffn_norm.weight"),
    )


def phi2(header: Header) -> dict[str, Any]:
    return header.config("PhiForCausalLM", partial_rotary_factor=header.rotated_part)


def nemotron(header: Header) -> dict[str, Any]:
    """The epsilon of layer norms counts, of its two."""
    fields = header.fields
    epsilon = fields.rms_epsilon if fields.norm_epsilon is None else fields.norm_epsilon
    return header.config(
        "NemotronForCausalLM",
        partial_rotary_factor=header.rotated_part,
        norm_eps=shortest(epsilon or 0.0),
        mlp_bias=header.has("blk.0.ffn_up.bias"),
    )


def minicpm(header: Header) -> dict[str, Any]:
    """The factors themselves are stored, not the numbers that they follow from."""
    fields = header.fields
    return header.config(
        "MiniCPMForCausalLM",
        scale_emb=shortest(fields.embedding_scale or 1.0),
        scale_depth=shortest(fields.residual_scale or 1.0) * fields.block_count**0.5,
        dim_model_base=fields.embedding_length / shortest(fields.logit_scale or 1.0),
    )


def gpt_oss(header: Header) -> dict[str, Any]:
    """YaRN's ramp is not rounded to whole dimensions."""
    return header.config(
        "GptOssForCausalLM",
        header.windows,
        local_experts(header),
        intermediate_size=header.fields.expert_feed_forward_length,
        rope_parameters=header.rope | {"truncate": False},
    )


def _gate_up_in_turns(kind: str) -> Undo:
    """gpt-oss has rows of gate and up in turns."""

    def undo(spec: ModelSpec, stored: str) -> Declaration:
        del stored
        width = spec.experts[0].expert.width
        return regrouped(gate_up("exps", kind, width, axis=1), width, (1, 1), axis=1)

    return undo


def _turned(undo: Undo) -> Undo:
    return lambda spec, stored: Transpose(undo(spec, stored))


NEMOTRON: dict[str, Undo] = {"norm.weight": lambda spec, stored: AddOne(stored, -1)}
STABLELM: dict[str, Undo] = {
    "q_layernorm.norms.{head}.weight": lambda *_: "blk.{layer}.attn_q_norm.weight[{head}]",
    "k_layernorm.norms.{head}.weight": lambda *_: "blk.{layer}.attn_k_norm.weight[{head}]",
}
GPT_OSS: dict[str, Undo] = {
    "self_attn.sinks": lambda *_: "blk.{layer}.attn_sinks.weight",
    "experts.gate_up_proj": _turned(_gate_up_in_turns("weight")),
    "experts.gate_up_proj_bias": _gate_up_in_turns("bias"),
    "experts.down_proj": lambda *_: Transpose("blk.{layer}.ffn_down_exps.weight"),
    "experts.down_proj_bias": lambda *_: "blk.{layer}.ffn_down_exps.bias",
}
OTHERS = (
    Architecture("olmo", olmo, HALVES),
    Architecture("olmo2", olmo2),
    Architecture("smollm3", smollm3, HALVES),
    Architecture("exaone4", exaone4),
    Architecture("command-r", command_r),
    Architecture("cohere2", cohere2),
    Architecture("stablelm", stablelm, STABLELM),
    Architecture("phi2", phi2),
    Architecture("nemotron", nemotron, NEMOTRON),
    Architecture("minicpm", minicpm, HALVES),
    Architecture("gpt-oss", gpt_oss, GPT_OSS),
)


ARCHITECTURES: dict[str, Architecture] = {
    one.name: one for one in (*LLAMAS, *GEMMAS, *FUSED, *GRANITES, *OTHERS)
}


def architecture_of(file: GgufFile) -> Architecture:
    """The declarations of a file's architecture. Raises ConfigError that lists the known ones."""
    name = file.metadata.get("general.architecture")
    found = ARCHITECTURES.get(name) if isinstance(name, str) else None
    if found is None:
        raise ConfigError(
            f"{file.path}: GGUF architecture {short(name)} is not supported; known: "
            f"{', '.join(sorted(ARCHITECTURES))}."
        )
    return found
