"""Phi-1, 1.5 and 2: attention and a plain MLP in parallel after one layer norm; partial RoPE."""

from jax_engine.model_spec import HeadNormSpec, MlpSpec, ModelSpec, NormSpec
from jax_engine.models.families import llama
from jax_engine.models.families.changed import changed
from jax_engine.models.families.hf_config import activation_from_hf, partial_factor
from jax_engine.models.hf_schemas import Epsilon, Fraction, LlamaFields
from jax_engine.weights.transforms import Declaration, Repeat


class Fields(LlamaFields, frozen=True):
    """Llama's fields and Phi's own."""

    hidden_act: str = "gelu_new"
    layer_norm_eps: Epsilon = 1e-5
    qk_layernorm: bool = False
    partial_rotary_factor: Fraction | None = None


def specification(fields: Fields) -> ModelSpec:
    """Equal layers; all matrices have a bias, the head too."""
    plain = llama.specification(fields, partial_factor(fields, 0.5))
    norm = NormSpec(fields.layer_norm_eps, "layer", bias=True)
    head_norm = HeadNormSpec(norm.eps, norm.kind, bias=True) if fields.qk_layernorm else None
    activation = activation_from_hf(fields.hidden_act)
    mlp = MlpSpec(fields.intermediate_size, activation, gated=False, bias=True)
    return changed(
        plain,
        attention={
            "qkv_bias": True,
            "output_bias": True,
            "head_norm": head_norm,
        },
        layer={"mlp": mlp, "input_norm": norm, "mlp_norm": None, "parallel": True},
        norm=norm,
        head_bias=True,
    )


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Llama's names, but for the output projection, the MLP, the head norms and the last norm."""
    attention, mlp = "model.layers.{layer}.self_attn", "model.layers.{layer}.mlp"
    return llama.weights(spec) | {
        "layers.attention.o": f"{attention}.dense.{{kind}}",
        "layers.attention.q_norm": Repeat(f"{attention}.q_layernorm.{{kind}}"),
        "layers.attention.k_norm": Repeat(f"{attention}.k_layernorm.{{kind}}"),
        "layers.mlp.up": f"{mlp}.fc1.{{kind}}",
        "layers.mlp.down": f"{mlp}.fc2.{{kind}}",
        "norm": "model.final_layernorm.{kind}",
    }
