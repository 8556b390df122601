"""GPT-J: attention and MLP in parallel after one layer norm; partial RoPE in neighbouring pairs."""

import msgspec

from jax_engine.model_spec import (
    AttentionSpec,
    LayerGroup,
    LayerSpec,
    MlpSpec,
    ModelSpec,
    NormSpec,
    RopeConfig,
)
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families import gpt2
from jax_engine.models.families.hf_config import activation_from_hf
from jax_engine.models.families.neighbours import qkv_in_halves
from jax_engine.models.hf_schemas import Epsilon
from jax_engine.weights.transforms import Declaration


class Fields(msgspec.Struct, frozen=True):
    """config.json."""

    vocab_size: Size
    n_embd: Size
    n_layer: Size
    n_head: Size
    n_positions: Size = 2048
    n_inner: Size | None = None
    rotary_dim: Size = 64
    activation_function: str = "gelu_new"
    layer_norm_epsilon: Epsilon = 1e-5
    tie_word_embeddings: bool | None = False


def specification(fields: Fields) -> ModelSpec:
    """Equal layers; the MLP and the head have biases, attention has none."""
    norm = NormSpec(fields.layer_norm_epsilon, "layer", bias=True)
    attention = AttentionSpec(
        num_heads=fields.n_head,
        num_kv_heads=fields.n_head,
        head_dim=fields.n_embd // fields.n_head,
        rope=RopeConfig(),
        rotary_dim=fields.rotary_dim,
    )
    activation = activation_from_hf(fields.activation_function, "activation_function")
    mlp = MlpSpec(fields.n_inner or 4 * fields.n_embd, activation, gated=False, bias=True)
    layer = LayerSpec(attention, mlp, input_norm=norm, parallel=True)
    return ModelSpec(
        vocab_size=fields.vocab_size,
        width=fields.n_embd,
        groups=(LayerGroup((layer,), fields.n_layer),),
        norm=norm,
        max_context_len=fields.n_positions,
        tied=bool(fields.tie_word_embeddings),
        head_bias=True,
    )


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """GPT-2's names, but for these. Rows of q and k are put so that the halves of a head rotate."""
    layer = "transformer.h.{layer}"
    return {
        **gpt2.names(),
        **qkv_in_halves(spec, f"{layer}.attn"),
        "layers.attention.o": f"{layer}.attn.out_proj.{{kind}}",
        "layers.mlp.up": f"{layer}.mlp.fc_in.{{kind}}",
        "layers.mlp.down": f"{layer}.mlp.fc_out.{{kind}}",
    }
