"""BERT: an encoder that norms each sum; positions and types of tokens are learned tables."""

import msgspec

from jax_engine.model_spec import AttentionSpec, LayerGroup, LayerSpec, MlpSpec, ModelSpec, NormSpec
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families.hf_config import activation_from_hf, require
from jax_engine.models.hf_schemas import Epsilon
from jax_engine.models.model_config import HeadLayers, HeadTask
from jax_engine.weights.transforms import Concatenate, Declaration


class Fields(msgspec.Struct, frozen=True):
    """config.json."""

    vocab_size: Size = 30522
    hidden_size: Size = 768
    num_hidden_layers: Size = 12
    num_attention_heads: Size = 12
    intermediate_size: Size = 3072
    hidden_act: str = "gelu"
    max_position_embeddings: Size = 512
    type_vocab_size: Size = 2
    layer_norm_eps: Epsilon = 1e-12
    position_embedding_type: str | None = None
    is_decoder: bool | None = False


def specification(fields: Fields) -> ModelSpec:
    """Equal layers. Raises ConfigError for relative positions, and for a decoder of this name."""
    if fields.position_embedding_type is not None:
        require(fields, position_embedding_type="absolute")
    if fields.is_decoder is not None:
        require(fields, is_decoder=False)
    width, norm = fields.hidden_size, NormSpec(fields.layer_norm_eps, "layer", bias=True)
    attention = AttentionSpec(
        num_heads=fields.num_attention_heads,
        num_kv_heads=fields.num_attention_heads,
        head_dim=width // fields.num_attention_heads,
        causal=False,
        qkv_bias=True,
        output_bias=True,
    )
    activation = activation_from_hf(fields.hidden_act)
    mlp = MlpSpec(fields.intermediate_size, activation, gated=False, bias=True)
    layer = LayerSpec(
        attention, mlp, attention_output_norm=norm, mlp_output_norm=norm, post_norm=True
    )
    return ModelSpec(
        vocab_size=fields.vocab_size,
        width=width,
        groups=(LayerGroup((layer,), fields.num_hidden_layers),),
        norm=None,
        max_context_len=fields.max_position_embeddings,
        learned_positions=fields.max_position_embeddings,
        token_types=fields.type_vocab_size,
        embedding_norm=norm,
    )


def weights(spec: ModelSpec, model: str = "bert") -> dict[str, Declaration]:
    """The checkpoint's tensors that make each module, below the name of the whole model."""
    table, layer = f"{model}.embeddings", f"{model}.encoder.layer.{{layer}}"
    q, k, v = (f"{layer}.attention.self.{name}.{{kind}}" for name in ("query", "key", "value"))
    return {
        "embed": f"{table}.word_embeddings.{{kind}}",
        "positions": f"{table}.position_embeddings.{{kind}}",
        "token_types": f"{table}.token_type_embeddings.{{kind}}",
        "embed_norm": f"{table}.LayerNorm.{{kind}}",
        "layers.attention.qkv": Concatenate((q, k, v)),
        "layers.attention.o": f"{layer}.attention.output.dense.{{kind}}",
        "layers.attention_output_norm": f"{layer}.attention.output.LayerNorm.{{kind}}",
        "layers.mlp.up": f"{layer}.intermediate.dense.{{kind}}",
        "layers.mlp.down": f"{layer}.output.dense.{{kind}}",
        "layers.mlp_output_norm": f"{layer}.output.LayerNorm.{{kind}}",
    }


def head(fields: Fields, task: HeadTask, model: str = "bert") -> HeadLayers:
    """Scores of the first token's state, behind the pooler; or of each token's."""
    if task == "token_classify":
        return HeadLayers("classifier")
    return HeadLayers("classifier", "CLS", dense=f"{model}.pooler.dense", activation="tanh")
