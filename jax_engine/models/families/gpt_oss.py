"""gpt-oss: experts with biases and a clipped SwiGLU, sinks, a window on every other layer."""

import msgspec

from jax_engine.model_spec import ExpertsSpec, MlpSpec, ModelSpec, RouterSpec
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families import llama
from jax_engine.models.families.changed import changed
from jax_engine.models.families.hf_config import FULL, SLIDING, require, windows_of
from jax_engine.models.hf_schemas import LlamaFields, RopeFields, Theta
from jax_engine.weights.transforms import Declaration, Transpose, ungrouped

# Of a config.json that says nothing of the rotary embedding
ROPE = RopeFields(
    rope_type="yarn",
    factor=32.0,
    beta_fast=32.0,
    beta_slow=1.0,
    truncate=False,
    original_max_position_embeddings=4096,
)


class Fields(LlamaFields, frozen=True):
    """Llama's fields, the experts and the windows."""

    num_key_value_heads: Size | None = 8
    rms_norm_eps: float = 1e-5
    rope_theta: Theta = 150000.0
    head_dim: Size | None = 64
    attention_bias: bool | None = True
    sliding_window: Size | None = 128
    layer_types: list[str] | None = None
    num_local_experts: Size = 128
    num_experts_per_tok: Size = 4
    swiglu_limit: float = 7.0
    swiglu_alpha: float = 1.702


def specification(fields: Fields) -> ModelSpec:
    """Llama's layers with sinks; the first one has the window."""
    require(fields, swiglu_limit=7.0, swiglu_alpha=1.702)
    if fields.rope_scaling is None and fields.rope_parameters is None:
        fields = msgspec.structs.replace(fields, rope_parameters=ROPE)
    count = fields.num_hidden_layers
    types = fields.layer_types or [FULL if layer % 2 else SLIDING for layer in range(count)]
    counts = fields.num_local_experts, fields.num_experts_per_tok
    router = RouterSpec(*counts, "chosen_softmax", bias=True)
    expert = MlpSpec(fields.intermediate_size, "clipped_swiglu", bias=True)
    window = windows_of(types, fields.sliding_window, count)
    return changed(
        llama.specification(fields),
        attention={"sinks": True, "window": window},
        layer={"mlp": ExpertsSpec(router, expert)},
    )


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Llama's names; experts are stored as [in, out], with the columns of gate and up in turns."""
    mlp, width = "model.layers.{layer}.mlp", spec.experts[0].expert.width
    gate_up = Transpose(f"{mlp}.experts.gate_up_proj")
    return llama.weights(spec) | {
        "layers.attention.sinks": "model.layers.{layer}.self_attn.sinks",
        "layers.experts.router": f"{mlp}.router.{{kind}}",
        "layers.experts.gate_up.weight": ungrouped(gate_up, width, (1, 1), axis=1),
        "layers.experts.gate_up.bias": ungrouped(
            f"{mlp}.experts.gate_up_proj_bias", width, (1, 1), axis=1
        ),
        "layers.experts.down.weight": Transpose(f"{mlp}.experts.down_proj"),
        "layers.experts.down.bias": f"{mlp}.experts.down_proj_bias",
    }
