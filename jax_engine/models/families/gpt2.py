"""GPT-2: learned positions, layer norms, a plain MLP, biases everywhere."""

import msgspec

from jax_engine.model_spec import AttentionSpec, LayerGroup, LayerSpec, MlpSpec, ModelSpec, NormSpec
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families.hf_config import activation_from_hf, require
from jax_engine.models.hf_schemas import Epsilon
from jax_engine.weights.transforms import Declaration, Transpose


class Fields(msgspec.Struct, frozen=True):
    """config.json."""

    vocab_size: Size
    n_embd: Size
    n_layer: Size
    n_head: Size
    n_positions: Size = 1024
    n_inner: Size | None = None
    activation_function: str = "gelu_new"
    layer_norm_epsilon: Epsilon = 1e-5
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    add_cross_attention: bool = False
    tie_word_embeddings: bool | None = True


def specification(fields: Fields, num_kv_heads: int | None = None) -> ModelSpec:
    """Equal layers.

    Args:
        num_kv_heads: None: as many as query heads.

    Raises:
        ConfigError: the scores are scaled by the layer's number.
    """
    require(fields, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    norm = NormSpec(fields.layer_norm_epsilon, "layer", bias=True)
    attention = AttentionSpec(
        num_heads=fields.n_head,
        num_kv_heads=num_kv_heads or fields.n_head,
        head_dim=fields.n_embd // fields.n_head,
        scale=None if fields.scale_attn_weights else 1.0,
        qkv_bias=True,
        output_bias=True,
    )
    activation = activation_from_hf(fields.activation_function, "activation_function")
    mlp = MlpSpec(fields.n_inner or 4 * fields.n_embd, activation, gated=False, bias=True)
    layer = LayerSpec(attention, mlp, input_norm=norm, mlp_norm=norm)
    return ModelSpec(
        vocab_size=fields.vocab_size,
        width=fields.n_embd,
        groups=(LayerGroup((layer,), fields.n_layer),),
        norm=norm,
        max_context_len=fields.n_positions,
        learned_positions=fields.n_positions,
        tied=bool(fields.tie_word_embeddings),
    )


def names() -> dict[str, str]:
    """The tensor of each module; {kind} is weight or bias."""
    layer = "transformer.h.{layer}"
    return {
        "embed": "transformer.wte.{kind}",
        "positions": "transformer.wpe.{kind}",
        "layers.input_norm": f"{layer}.ln_1.{{kind}}",
        "layers.attention.qkv": f"{layer}.attn.c_attn.{{kind}}",
        "layers.attention.o": f"{layer}.attn.c_proj.{{kind}}",
        "layers.mlp_norm": f"{layer}.ln_2.{{kind}}",
        "layers.mlp.up": f"{layer}.mlp.c_fc.{{kind}}",
        "layers.mlp.down": f"{layer}.mlp.c_proj.{{kind}}",
        "norm": "transformer.ln_f.{kind}",
        "lm_head": "lm_head.{kind}",
    }


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """GPT-2's names; the matrices of layers (Conv1D) are stored as [in, out]."""
    del spec
    matrices = ("layers.attention.", "layers.mlp.")
    return {
        module: Transpose(name) if module.startswith(matrices) else name
        for module, name in names().items()
    }
