"""The fields of a model's files that are read, with their types and ranges.

Each class is a part of one file: config.json, generation_config.json, the index of shards, or the
metadata of a GGUF file. Ranges are wide: they exclude only what cannot be computed.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from jax_engine.models.checkpoints.file_schema import NotNegative, Positive, Size, TokenId

Theta = Annotated[float, Meta(gt=1, le=1e30)]  # with 1 all pairs would rotate equally fast
Factor = Annotated[float, Meta(gt=0, le=1e6)]
Epsilon = Annotated[float, Meta(ge=0, le=1)]
Fraction = Annotated[float, Meta(gt=0, le=1)]


class RopeFields(msgspec.Struct, frozen=True):
    """`rope_scaling`, or `rope_parameters` of transformers 5; null and absent are the same.

    Where layers with and without a window have embeddings of their own, `rope_parameters` holds two
    dictionaries, one for each type of layer.
    """

    rope_type: str | None = None
    type: str | None = None  # the older name of rope_type
    rope_theta: Theta | None = None
    factor: Factor | None = None
    original_max_position_embeddings: Size | None = None
    low_freq_factor: Positive | None = None
    high_freq_factor: Positive | None = None
    attention_factor: Positive | None = None
    beta_fast: Positive | None = None
    beta_slow: Positive | None = None
    mscale: NotNegative | None = None
    mscale_all_dim: NotNegative | None = None
    truncate: bool | None = None
    partial_rotary_factor: Fraction | None = None
    short_factor: list[Factor] | None = None
    long_factor: list[Factor] | None = None
    frequency_factors: list[Factor] | None = None  # a GGUF file's, which replace llama3's formula
    full_attention: "RopeFields | None" = None
    sliding_attention: "RopeFields | None" = None


class ArchitectureFields(msgspec.Struct, frozen=True):
    """Which model config.json describes."""

    architectures: list[str]


class LayerFields(msgspec.Struct, frozen=True):
    """Layers beyond those of the model (multi-token prediction)."""

    num_nextn_predict_layers: Annotated[int, Meta(ge=0, le=64)] | None = 0


class MatryoshkaFields(msgspec.Struct, frozen=True):
    """The widths to which a model's embeddings may be cut."""

    is_matryoshka: bool | None = False
    matryoshka_dimensions: list[Size] | None = None


class LlamaFields(msgspec.Struct, frozen=True):
    """config.json of Llama and its kin."""

    vocab_size: Size
    hidden_size: Size
    intermediate_size: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    max_position_embeddings: Size
    num_key_value_heads: Size | None = None
    head_dim: Size | None = None
    hidden_act: str = "silu"
    rms_norm_eps: Epsilon = 1e-6
    rope_theta: Theta = 10000.0
    rope_scaling: RopeFields | None = None
    rope_parameters: RopeFields | None = None
    original_max_position_embeddings: Size | None = None
    tie_word_embeddings: bool | None = False
    attention_bias: bool | None = False
    mlp_bias: bool | None = False


class TokenFields(msgspec.Struct, frozen=True):
    """The tokens with a meaning that config.json names."""

    eos_token_id: TokenId | list[TokenId] | None = None
    bos_token_id: TokenId | None = None


class GenerationFields(msgspec.Struct, frozen=True):
    """generation_config.json."""

    eos_token_id: TokenId | list[TokenId] | None = None


class IndexFields(msgspec.Struct, frozen=True):
    """model.safetensors.index.json: the file of each tensor."""

    weight_map: dict[str, str]
