"""OLMo 1 to 3, SmolLM 3, EXAONE 4, Cohere, StableLM, Phi-2, Nemotron, MiniCPM and gpt-oss."""

from typing import Any

from jax_engine.model_spec import ModelSpec
from jax_engine.models.gguf.architecture import Architecture, Header, Undo
from jax_engine.models.gguf.granites import gate_up
from jax_engine.models.gguf.llamas import HALVES, local_experts
from jax_engine.models.gguf.rope import shortest
from jax_engine.weights.row_orders import regrouped
from jax_engine.weights.transforms import AddOne, Declaration, Transpose


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
ARCHITECTURES = (
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
