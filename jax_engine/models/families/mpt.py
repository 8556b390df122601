"""MPT: ALiBi with slopes of its own, layer norms without bias, clipped queries, keys and values."""

import msgspec

from jax_engine.model_spec import (
    AttentionSpec,
    HeadNormSpec,
    LayerGroup,
    LayerSpec,
    MlpSpec,
    ModelSpec,
    NormSpec,
)
from jax_engine.models.checkpoints.file_schema import Positive, Size
from jax_engine.models.families.alibi import mpt_slopes
from jax_engine.models.families.hf_config import require, require_one_of
from jax_engine.models.hf_schemas import Epsilon
from jax_engine.weights.transforms import Declaration, Flat

MULTI_QUERY = "multiquery_attention"
ATTENTION = ("multihead_attention", "grouped_query_attention", MULTI_QUERY)
NORMS = ("low_precision_layernorm", "layernorm")


class AttentionFields(msgspec.Struct, frozen=True):
    """`attn_config` of config.json."""

    alibi: bool = True
    alibi_bias_max: Positive = 8.0
    clip_qkv: Positive | None = None
    softmax_scale: Positive | None = None
    qk_ln: bool = False
    kv_n_heads: Size | None = None
    prefix_lm: bool = False
    attn_type: str = ATTENTION[0]
    rope: bool = False
    sliding_window_size: int = -1


class FfnFields(msgspec.Struct, frozen=True):
    """`ffn_config` of config.json."""

    ffn_type: str = "mptmlp"


class Fields(msgspec.Struct, frozen=True):
    """config.json."""

    vocab_size: Size
    d_model: Size
    n_layers: Size
    n_heads: Size
    max_seq_len: Size = 2048
    expansion_ratio: Size = 4
    layer_norm_epsilon: Epsilon = 1e-5
    no_bias: bool = True
    learned_pos_emb: bool = True
    norm_type: str = NORMS[0]
    logit_scale: float | str | None = None
    embedding_fraction: float = 1.0
    ffn_config: FfnFields = FfnFields()
    attn_config: AttentionFields = AttentionFields()
    tie_word_embeddings: bool | None = True


def specification(fields: Fields) -> ModelSpec:
    """Equal layers, by default without biases; learned positions where there is no ALiBi."""
    attn, bias = fields.attn_config, not fields.no_bias
    _require(fields)
    norm = NormSpec(fields.layer_norm_epsilon, "layer", bias=bias)
    head_norm = HeadNormSpec(norm.eps, norm.kind, bias=bias, whole=True)
    slopes = mpt_slopes(fields.n_heads, attn.alibi_bias_max)
    attention = AttentionSpec(
        num_heads=fields.n_heads,
        num_kv_heads=1 if attn.attn_type == MULTI_QUERY else attn.kv_n_heads or fields.n_heads,
        head_dim=fields.d_model // fields.n_heads,
        scale=attn.softmax_scale,
        alibi_slopes=slopes if attn.alibi else None,
        clip=attn.clip_qkv,
        head_norm=head_norm if attn.qk_ln else None,
        qkv_bias=bias,
        output_bias=bias,
    )
    mlp = MlpSpec(fields.expansion_ratio * fields.d_model, "gelu", gated=False, bias=bias)
    layer = LayerSpec(attention, mlp, input_norm=norm, mlp_norm=norm)
    return ModelSpec(
        vocab_size=fields.vocab_size,
        width=fields.d_model,
        groups=(LayerGroup((layer,), fields.n_layers),),
        norm=norm,
        max_context_len=fields.max_seq_len,
        learned_positions=None if attn.alibi else fields.max_seq_len,
        tied=bool(fields.tie_word_embeddings),
    )


def _require(fields: Fields) -> None:
    """Refuses the variants that were trained with the same name and are not here."""
    require(fields.attn_config, prefix_lm=False, rope=False, sliding_window_size=-1)
    require(fields, logit_scale=None, embedding_fraction=1.0)
    require(fields.ffn_config, ffn_type="mptmlp")
    require_one_of(fields, "norm_type", NORMS)
    require_one_of(fields.attn_config, "attn_type", ATTENTION)
    if not fields.attn_config.alibi:
        require(fields, learned_pos_emb=True)


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """The checkpoint's tensors that make each module of the decoder."""
    del spec
    layer = "transformer.blocks.{layer}"
    return {
        "embed": "transformer.wte.{kind}",
        "positions": "transformer.wpe.{kind}",
        "layers.input_norm": f"{layer}.norm_1.{{kind}}",
        "layers.attention.qkv": f"{layer}.attn.Wqkv.{{kind}}",
        "layers.attention.o": f"{layer}.attn.out_proj.{{kind}}",
        "layers.attention.q_norm": Flat(f"{layer}.attn.q_ln.{{kind}}"),
        "layers.attention.k_norm": Flat(f"{layer}.attn.k_ln.{{kind}}"),
        "layers.mlp_norm": f"{layer}.norm_2.{{kind}}",
        "layers.mlp.up": f"{layer}.ffn.up_proj.{{kind}}",
        "layers.mlp.down": f"{layer}.ffn.down_proj.{{kind}}",
        "norm": "transformer.norm_f.{kind}",
        "lm_head": "lm_head.{kind}",
    }
