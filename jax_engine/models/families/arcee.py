"""Arcee AFM: Llama with a plain MLP of squared ReLU."""

from jax_engine.model_spec import MlpSpec, ModelSpec
from jax_engine.models.families import llama
from jax_engine.models.families.changed import changed
from jax_engine.models.families.hf_config import activation_from_hf
from jax_engine.models.hf_schemas import Epsilon, LlamaFields
from jax_engine.weights.transforms import Declaration


class Fields(LlamaFields, frozen=True):
    """Llama's fields with other defaults."""

    hidden_act: str = "relu2"
    rms_norm_eps: Epsilon = 1e-5


def specification(fields: Fields) -> ModelSpec:
    """Llama's layers with another MLP."""
    bias, activation = bool(fields.mlp_bias), activation_from_hf(fields.hidden_act)
    mlp = MlpSpec(fields.intermediate_size, activation, gated=False, bias=bias)
    return changed(llama.specification(fields), layer={"mlp": mlp})


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Llama's names; the MLP has no gate."""
    return llama.weights(spec) | {"layers.mlp.up": "model.layers.{layer}.mlp.up_proj.{kind}"}
