"""Nemotron, Minitron: layer norms of scale 1 + w, a plain MLP with squared ReLU, partial RoPE."""

from jax_engine.model_spec import MlpSpec, ModelSpec, NormSpec
from jax_engine.models.families import llama
from jax_engine.models.families.changed import changed
from jax_engine.models.families.hf_config import activation_from_hf, partial_factor
from jax_engine.models.hf_schemas import Epsilon, Fraction, LlamaFields
from jax_engine.weights.transforms import AddOne, Declaration


class Fields(LlamaFields, frozen=True):
    """Llama's fields and Nemotron's own."""

    hidden_act: str = "relu2"
    norm_eps: Epsilon = 1e-5
    partial_rotary_factor: Fraction | None = None


def specification(fields: Fields) -> ModelSpec:
    """Llama's layers with other norms and another MLP."""
    plain = llama.specification(fields, partial_factor(fields, 0.5))
    norm = NormSpec(fields.norm_eps, "layer", bias=True)
    bias, activation = bool(fields.mlp_bias), activation_from_hf(fields.hidden_act)
    return changed(
        plain,
        layer={
            "mlp": MlpSpec(fields.intermediate_size, activation, gated=False, bias=bias),
            "input_norm": norm,
            "mlp_norm": norm,
        },
        norm=norm,
    )


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Llama's names; the norms' scale 1 + w is stored as w, their bias as it is."""
    found = llama.weights(spec)
    norms = ("layers.input_norm", "layers.mlp_norm", "norm")
    plus_one = {f"{name}.weight": AddOne(found[name]) for name in norms}
    return found | plus_one | {"layers.mlp.up": "model.layers.{layer}.mlp.up_proj.{kind}"}
