"""OPT: GPT-2 with ReLU; its table of positions begins with two unused rows."""

import msgspec

from jax_engine.model_spec import AttentionSpec, LayerGroup, LayerSpec, MlpSpec, ModelSpec, NormSpec
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families.hf_config import activation_from_hf, require
from jax_engine.weights.transforms import Concatenate, Declaration, split

UNUSED = 2  # rows before that of position 0


class Fields(
    msgspec.Struct, frozen=True, rename={"remove_final_layer_norm": "_remove_final_layer_norm"}
):
    """config.json."""

    vocab_size: Size
    hidden_size: Size
    ffn_dim: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    max_position_embeddings: Size = 2048
    word_embed_proj_dim: Size | None = None
    activation_function: str = "relu"
    do_layer_norm_before: bool = True
    enable_bias: bool = True
    layer_norm_elementwise_affine: bool = True
    remove_final_layer_norm: bool = False
    tie_word_embeddings: bool | None = True


def specification(fields: Fields) -> ModelSpec:
    """Equal layers.

    Raises:
        ConfigError: it is OPT-350m, which norms after each residual sum and projects embeddings.
    """
    width, bias = fields.hidden_size, fields.enable_bias
    require(fields, do_layer_norm_before=True, layer_norm_elementwise_affine=True)
    require(fields, remove_final_layer_norm=False)
    if fields.word_embed_proj_dim is not None:
        require(fields, word_embed_proj_dim=width)
    norm = NormSpec(1e-5, "layer", bias=True)
    attention = AttentionSpec(
        num_heads=fields.num_attention_heads,
        num_kv_heads=fields.num_attention_heads,
        head_dim=width // fields.num_attention_heads,
        qkv_bias=bias,
        output_bias=bias,
    )
    activation = activation_from_hf(fields.activation_function, "activation_function")
    mlp = MlpSpec(fields.ffn_dim, activation, gated=False, bias=bias)
    layer = LayerSpec(attention, mlp, input_norm=norm, mlp_norm=norm)
    return ModelSpec(
        vocab_size=fields.vocab_size,
        width=width,
        groups=(LayerGroup((layer,), fields.num_hidden_layers),),
        norm=norm,
        max_context_len=fields.max_position_embeddings,
        learned_positions=fields.max_position_embeddings,
        tied=bool(fields.tie_word_embeddings),
    )


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """The checkpoint's tensors that make each module of the decoder."""
    decoder, layer = "model.decoder", "model.decoder.layers.{layer}"
    q, k, v = (f"{layer}.self_attn.{name}_proj.{{kind}}" for name in "qkv")
    rows, width = UNUSED + spec.max_context_len, spec.num_heads * spec.head_dim
    return {
        "embed": f"{decoder}.embed_tokens.{{kind}}",
        "positions": split(f"{decoder}.embed_positions.{{kind}}", UNUSED, rows, rows),
        "layers.input_norm": f"{layer}.self_attn_layer_norm.{{kind}}",
        "layers.attention.qkv": Concatenate((q, k, v), sizes=(width, width, width)),
        "layers.attention.o": f"{layer}.self_attn.out_proj.{{kind}}",
        "layers.mlp_norm": f"{layer}.final_layer_norm.{{kind}}",
        "layers.mlp.up": f"{layer}.fc1.{{kind}}",
        "layers.mlp.down": f"{layer}.fc2.{{kind}}",
        "norm": f"{decoder}.final_layer_norm.{{kind}}",
        "lm_head": "lm_head.{kind}",
    }
