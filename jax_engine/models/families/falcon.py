"""Falcon: parallel parts with one norm (7B) or two (40B); Falcon-RW is sequential, with ALiBi."""

import msgspec
import numpy as np
from ml_dtypes import bfloat16

from jax_engine.model_spec import AttentionSpec, LayerGroup, LayerSpec, MlpSpec, ModelSpec, NormSpec
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families import bloom
from jax_engine.models.families.alibi import press_slopes
from jax_engine.models.families.hf_config import (
    activation_from_hf,
    context_of,
    require,
    require_one_of,
    rope_from_hf,
)
from jax_engine.models.hf_schemas import Epsilon, RopeFields, Theta
from jax_engine.weights.transforms import Declaration


class Fields(msgspec.Struct, frozen=True):
    """config.json."""

    vocab_size: Size
    hidden_size: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    num_kv_heads: Size | None = None
    ffn_hidden_size: Size | None = None
    max_position_embeddings: Size = 2048
    layer_norm_epsilon: Epsilon = 1e-5
    activation: str = "gelu"
    alibi: bool = False
    model_type: str = "falcon"  # RefinedWeb is the older name of the new architecture
    new_decoder_architecture: bool = False
    num_ln_in_parallel_attn: int | None = None
    apply_residual_connection_post_layernorm: bool = False
    multi_query: bool = True
    parallel_attn: bool = True
    bias: bool = False
    rope_theta: Theta = 10000.0
    rope_scaling: RopeFields | None = None
    rope_parameters: RopeFields | None = None
    original_max_position_embeddings: Size | None = None
    tie_word_embeddings: bool | None = True


def specification(fields: Fields) -> ModelSpec:
    """Equal layers; the new architecture is always parallel, and has groups of query heads."""
    rope, norm = rope_from_hf(fields), NormSpec(fields.layer_norm_epsilon, "layer", bias=True)
    new = fields.new_decoder_architecture or fields.model_type == "RefinedWeb"
    require(fields, apply_residual_connection_post_layernorm=False)
    require_one_of(fields, "num_ln_in_parallel_attn", (None, 1, 2) if new else (None, 1))
    if new:
        require(fields, parallel_attn=True)
    parallel = new or fields.parallel_attn
    two_norms = new and fields.num_ln_in_parallel_attn != 1
    attention = AttentionSpec(
        num_heads=fields.num_attention_heads,
        num_kv_heads=_kv_heads(fields, new),
        head_dim=fields.hidden_size // fields.num_attention_heads,
        rope=None if fields.alibi else rope,
        alibi_slopes=_slopes(fields) if fields.alibi else None,
        qkv_bias=fields.bias,
        output_bias=fields.bias,
    )
    width = fields.ffn_hidden_size or 4 * fields.hidden_size
    activation = activation_from_hf(fields.activation, "activation")
    mlp = MlpSpec(width, activation, gated=False, bias=fields.bias)
    layer = LayerSpec(
        attention,
        mlp,
        input_norm=norm,
        mlp_norm=norm if two_norms or not parallel else None,
        parallel=parallel,
    )
    return ModelSpec(
        vocab_size=fields.vocab_size,
        width=fields.hidden_size,
        groups=(LayerGroup((layer,), fields.num_hidden_layers),),
        norm=norm,
        max_context_len=context_of(fields.max_position_embeddings, rope),
        tied=bool(fields.tie_word_embeddings),
    )


def _kv_heads(fields: Fields, new: bool) -> int:
    if new:
        return fields.num_kv_heads or fields.num_attention_heads
    return 1 if fields.multi_query else fields.num_attention_heads


def _slopes(fields: Fields) -> tuple[float, ...]:
    """ALiBi's slopes: rounded to bfloat16, and scaled since ALiBi is added before the scale."""
    scale = (fields.hidden_size // fields.num_attention_heads) ** -0.5
    rounded = np.asarray(press_slopes(fields.num_attention_heads), bfloat16)
    return tuple(float(slope) * scale for slope in rounded)


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """BLOOM's names, but for the norms where there are two."""
    layer, one, found = "transformer.h.{layer}", spec.layers[0], bloom.weights(spec)
    if one.parallel and one.mlp_norm is not None:
        found["layers.input_norm"] = f"{layer}.ln_attn.{{kind}}"
        found["layers.mlp_norm"] = f"{layer}.ln_mlp.{{kind}}"
    return found
