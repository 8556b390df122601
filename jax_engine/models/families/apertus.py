"""Apertus: Llama with a plain MLP whose activation, xIELU, is learned, and with q/k norms."""

import msgspec

from jax_engine.model_spec import HeadNormSpec, MlpSpec, ModelSpec
from jax_engine.models.families import llama
from jax_engine.models.families.changed import changed
from jax_engine.models.families.hf_config import activation_from_hf
from jax_engine.models.families.qwen3 import head_norms
from jax_engine.models.hf_schemas import Epsilon, LlamaFields, RopeFields, Theta
from jax_engine.weights.transforms import Concatenate, Declaration, Number

# Of a config.json that says nothing of the rotary embedding
ROPE = RopeFields(
    rope_type="llama3",
    factor=8.0,
    original_max_position_embeddings=8192,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
)
LEARNED = "xielu"


class Fields(LlamaFields, frozen=True):
    """Llama's fields with other defaults."""

    hidden_act: str = LEARNED
    rms_norm_eps: Epsilon = 1e-5
    rope_theta: Theta = 12000000.0


def specification(fields: Fields) -> ModelSpec:
    """Llama's layers with another MLP, and a norm of each head."""
    if fields.rope_scaling is None and fields.rope_parameters is None:
        fields = msgspec.structs.replace(fields, rope_parameters=ROPE)
    known = fields.hidden_act == LEARNED
    activation = "xielu" if known else activation_from_hf(fields.hidden_act)
    return changed(
        llama.specification(msgspec.structs.replace(fields, hidden_act="silu")),
        attention={"head_norm": HeadNormSpec(fields.rms_norm_eps)},
        layer={"mlp": MlpSpec(fields.intermediate_size, activation, gated=False)},
    )


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Llama's names, but for the norms before each part and the MLP."""
    layer = "model.layers.{layer}"
    numbers = f"{layer}.mlp.act_fn"
    learned = f"{numbers}.alpha_p", f"{numbers}.alpha_n"
    fixed = Number(f"{numbers}.beta"), Number(f"{numbers}.eps")
    return (
        llama.weights(spec)
        | head_norms(f"{layer}.self_attn")
        | {
            "layers.input_norm": f"{layer}.attention_layernorm.{{kind}}",
            "layers.mlp_norm": f"{layer}.feedforward_layernorm.{{kind}}",
            "layers.mlp.up": f"{layer}.mlp.up_proj.{{kind}}",
            "layers.mlp.xielu": Concatenate((*learned, *fixed)),
        }
    )
