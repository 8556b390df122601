"""Gemma 1: Llama with RMS norms of scale 1 + w, GeGLU, and embeddings times sqrt(E)."""

from jax_engine.model_spec import ModelSpec
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families import llama
from jax_engine.models.families.changed import changed
from jax_engine.models.families.hf_config import activation_from_hf, require_one_of
from jax_engine.models.hf_schemas import LlamaFields
from jax_engine.weights.transforms import AddOne, Declaration


class Fields(LlamaFields, frozen=True):
    """Llama's fields. `hidden_act` is overridden: old files say "gelu" and mean the tanh kind."""

    num_key_value_heads: Size | None = 16
    head_dim: Size | None = 256
    hidden_act: str = "gelu_pytorch_tanh"
    hidden_activation: str | None = None
    tie_word_embeddings: bool | None = True
    use_bidirectional_attention: bool | None = None


def specification(fields: Fields) -> ModelSpec:
    """Llama's layers with another activation. Models that see what follows are refused."""
    require_one_of(fields, "use_bidirectional_attention", (None, False))
    old = "gelu_pytorch_tanh" if fields.hidden_act == "gelu" else fields.hidden_act
    return changed(
        llama.specification(fields),
        mlp={"activation": activation_from_hf(fields.hidden_activation or old)},
        embedding_factor=fields.hidden_size**0.5,
    )


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Llama's names; a norm with scale 1 + w is stored as w."""
    return with_ones(llama.weights(spec))


def with_ones(declared: dict[str, Declaration]) -> dict[str, Declaration]:
    """The same tensors, with one added to the norms."""
    return {
        module: AddOne(made) if module.endswith("norm") else made
        for module, made in declared.items()
    }
