"""StarCoder 2: Llama with GPT-2's layer norms, plain MLP and biases, and with a window."""

from jax_engine.model_spec import MlpSpec, ModelSpec, NormSpec
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families import llama
from jax_engine.models.families.changed import changed
from jax_engine.models.families.hf_config import activation_from_hf
from jax_engine.models.hf_schemas import Epsilon, LlamaFields
from jax_engine.weights.transforms import Declaration


class Fields(LlamaFields, frozen=True):
    """Llama's fields and StarCoder's own."""

    num_key_value_heads: Size | None = 2
    hidden_act: str = "gelu_pytorch_tanh"
    norm_epsilon: Epsilon = 1e-5
    use_bias: bool = True
    sliding_window: Size | None = None
    tie_word_embeddings: bool | None = True


def specification(fields: Fields) -> ModelSpec:
    """Llama's layers with other norms, another MLP and a window."""
    bias, norm = fields.use_bias, NormSpec(fields.norm_epsilon, "layer", bias=True)
    activation = activation_from_hf(fields.hidden_act)
    mlp = MlpSpec(fields.intermediate_size, activation, gated=False, bias=bias)
    return changed(
        llama.specification(fields),
        attention={
            "qkv_bias": bias,
            "output_bias": bias,
            "window": fields.sliding_window,
        },
        layer={"mlp": mlp, "input_norm": norm, "mlp_norm": norm},
        norm=norm,
    )


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Llama's names but for the MLP's."""
    return llama.weights(spec) | {
        "layers.mlp.up": "model.layers.{layer}.mlp.c_fc.{kind}",
        "layers.mlp.down": "model.layers.{layer}.mlp.c_proj.{kind}",
    }
