"""BLOOM: ALiBi instead of rotary positions, and a layer norm right after the embedding."""

import msgspec

from jax_engine.model_spec import AttentionSpec, LayerGroup, LayerSpec, MlpSpec, ModelSpec, NormSpec
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families.alibi import press_slopes
from jax_engine.models.families.hf_config import require
from jax_engine.models.hf_schemas import Epsilon
from jax_engine.weights.transforms import Declaration, ungrouped


class Fields(msgspec.Struct, frozen=True):
    """config.json."""

    vocab_size: Size
    hidden_size: Size
    n_layer: Size
    n_head: Size
    seq_length: Size = 2048
    layer_norm_epsilon: Epsilon = 1e-5
    apply_residual_connection_post_layernorm: bool = False
    tie_word_embeddings: bool | None = True


def specification(fields: Fields) -> ModelSpec:
    """Equal layers with biases everywhere."""
    require(fields, apply_residual_connection_post_layernorm=False)
    norm = NormSpec(fields.layer_norm_epsilon, "layer", bias=True)
    attention = AttentionSpec(
        num_heads=fields.n_head,
        num_kv_heads=fields.n_head,
        head_dim=fields.hidden_size // fields.n_head,
        alibi_slopes=press_slopes(fields.n_head),
        qkv_bias=True,
        output_bias=True,
    )
    mlp = MlpSpec(4 * fields.hidden_size, "gelu_tanh", gated=False, bias=True)
    layer = LayerSpec(attention, mlp, input_norm=norm, mlp_norm=norm)
    return ModelSpec(
        vocab_size=fields.vocab_size,
        width=fields.hidden_size,
        groups=(LayerGroup((layer,), fields.n_layer),),
        norm=norm,
        max_context_len=fields.seq_length,
        embedding_norm=norm,
        tied=bool(fields.tie_word_embeddings),
    )


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """The queries of a KV head are stored with its k and v."""
    layer, kv_heads = "transformer.h.{layer}", spec.num_kv_heads
    counts = (spec.num_heads // kv_heads, 1, 1)
    qkv = f"{layer}.self_attention.query_key_value.{{kind}}"
    return {
        "embed": "transformer.word_embeddings.{kind}",
        "embed_norm": "transformer.word_embeddings_layernorm.{kind}",
        "layers.input_norm": f"{layer}.input_layernorm.{{kind}}",
        "layers.attention.qkv": ungrouped(qkv, kv_heads, counts, spec.head_dim),
        "layers.attention.o": f"{layer}.self_attention.dense.{{kind}}",
        "layers.mlp_norm": f"{layer}.post_attention_layernorm.{{kind}}",
        "layers.mlp.up": f"{layer}.mlp.dense_h_to_4h.{{kind}}",
        "layers.mlp.down": f"{layer}.mlp.dense_4h_to_h.{{kind}}",
        "norm": "transformer.ln_f.{kind}",
        "lm_head": "lm_head.{kind}",
    }
