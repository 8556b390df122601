"""Hunyuan dense: Llama with q/k norms behind RoPE, whose base a fixed alpha stretches."""

from typing import ClassVar

import msgspec

from jax_engine.model_spec import HeadNormSpec, ModelSpec
from jax_engine.models.checkpoints.file_schema import Positive
from jax_engine.models.families import llama
from jax_engine.models.families.changed import changed
from jax_engine.models.families.hf_config import given, require
from jax_engine.models.hf_schemas import Epsilon, LlamaFields, RopeFields
from jax_engine.weights.transforms import Declaration, Repeat


class StretchedRope(RopeFields, frozen=True):
    """The rotary embedding with `alpha`."""

    alpha: Positive | None = None


class Fields(LlamaFields, frozen=True):
    """Llama's fields. Layers that use the keys and values of others (CLA) are refused."""

    rope_keys: ClassVar[tuple[str, ...]] = ("alpha",)
    rms_norm_eps: Epsilon = 1e-5
    rope_scaling: StretchedRope | None = None
    rope_parameters: StretchedRope | None = None
    use_qk_norm: bool | None = True
    use_cla: bool | None = False


def specification(fields: Fields) -> ModelSpec:
    """Llama's layers with norms of heads, behind the rotation."""
    require(fields, use_qk_norm=True, use_cla=False)
    norm = HeadNormSpec(fields.rms_norm_eps, rotated_first=True)
    return changed(llama.specification(stretched(fields)), attention={"head_norm": norm})


def stretched(fields: Fields) -> Fields:
    """The fields with the base that `alpha` makes: for any length, unlike NTK scaling's."""
    rope = given(fields.rope_scaling) | given(fields.rope_parameters)
    alpha = rope.pop("alpha", None)
    kind = rope.get("rope_type", rope.get("type"))
    if kind != "dynamic" or alpha is None:
        return fields
    size = fields.head_dim or fields.hidden_size // fields.num_attention_heads
    theta = rope.get("rope_theta", fields.rope_theta) * alpha ** (size / (size - 2))
    plain = StretchedRope(rope_type="default", rope_theta=theta)
    return msgspec.structs.replace(fields, rope_scaling=None, rope_parameters=plain)


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Llama's names, and those of the norms."""
    attention = "model.layers.{layer}.self_attn"
    return llama.weights(spec) | {
        "layers.attention.q_norm": Repeat(f"{attention}.query_layernorm.{{kind}}"),
        "layers.attention.k_norm": Repeat(f"{attention}.key_layernorm.{{kind}}"),
    }
