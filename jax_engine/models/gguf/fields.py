"""The metadata of a GGUF file that describe its model, with their types and ranges.

Keys begin with the architecture's name, as in `qwen2.block_count`; what follows it is the same for
all architectures.
"""

import functools
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from jax_engine.file_schema import NotNegative, Positive, Size, TokenId, checked
from jax_engine.models.gguf_file import GgufFile
from jax_engine.models.schemas import Epsilon, Theta

Stretch = Annotated[float, Meta(ge=0, le=1e6)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Experts = Annotated[int, Meta(ge=0, le=1 << 16)]

_OF_ARCHITECTURE = {
    "block_count": "block_count",
    "context_length": "context_length",
    "embedding_length": "embedding_length",
    "pooling_type": "pooling_type",
    "feed_forward_length": "feed_forward_length",
    "expert_feed_forward_length": "expert_feed_forward_length",
    "expert_shared_feed_forward_length": "expert_shared_feed_forward_length",
    "expert_count": "expert_count",
    "expert_used_count": "expert_used_count",
    "expert_weights_norm": "expert_weights_norm",
    "parallel_residual": "use_parallel_residual",
    "head_count": "attention.head_count",
    "head_count_kv": "attention.head_count_kv",
    "key_length": "attention.key_length",
    "rms_epsilon": "attention.layer_norm_rms_epsilon",
    "norm_epsilon": "attention.layer_norm_epsilon",
    "sliding_window": "attention.sliding_window",
    "window_pattern": "attention.sliding_window_pattern",
    "attention_scale": "attention.scale",
    "clamp_kqv": "attention.clamp_kqv",
    "attention_cap": "attn_logit_softcapping",
    "logits_cap": "final_logit_softcapping",
    "embedding_scale": "embedding_scale",
    "residual_scale": "residual_scale",
    "logit_scale": "logit_scale",
    "rotated": "rope.dimension_count",
    "freq_base": "rope.freq_base",
    "freq_base_window": "rope.freq_base_swa",
    "scale_linear": "rope.scale_linear",
    "scaling_type": "rope.scaling.type",
    "scaling_factor": "rope.scaling.factor",
    "scaling_original_context": "rope.scaling.original_context_length",
    "scaling_attention_factor": "rope.scaling.attn_factor",
    "scaling_beta_fast": "rope.scaling.yarn_beta_fast",
    "scaling_beta_slow": "rope.scaling.yarn_beta_slow",
}
_OF_TOKENS = {
    "bos_token_id": "tokenizer.ggml.bos_token_id",
    "eos_token_id": "tokenizer.ggml.eos_token_id",
    "eot_token_id": "tokenizer.ggml.eot_token_id",
    "eom_token_id": "tokenizer.ggml.eom_token_id",
}


class GgufFields(msgspec.Struct, frozen=True):
    """What the metadata say of a model; None: nothing. Norms have one of the two epsilons."""

    block_count: Size
    context_length: Size
    embedding_length: Size
    head_count: Size
    feed_forward_length: Size
    pooling_type: Count | None = None
    expert_feed_forward_length: Size | None = None
    expert_shared_feed_forward_length: Size | None = None
    expert_count: Experts | None = None
    expert_used_count: Experts | None = None
    expert_weights_norm: bool | None = None
    parallel_residual: bool | None = None
    head_count_kv: Size | None = None
    key_length: Size | None = None
    rms_epsilon: Epsilon | None = None
    norm_epsilon: Epsilon | None = None
    sliding_window: Count | None = None
    window_pattern: Size | list[bool] | None = None
    attention_scale: Positive | None = None
    clamp_kqv: NotNegative | None = None
    attention_cap: Positive | None = None
    logits_cap: Positive | None = None
    embedding_scale: Positive | None = None
    residual_scale: Positive | None = None
    logit_scale: Positive | None = None
    rotated: Size | None = None
    freq_base: Theta = 10000.0
    freq_base_window: Theta = 10000.0
    scale_linear: Stretch | None = None
    scaling_type: str | None = None
    scaling_factor: Stretch | None = None
    scaling_original_context: Count | None = None
    scaling_attention_factor: Positive | None = None
    scaling_beta_fast: Positive | None = None
    scaling_beta_slow: Positive | None = None
    bos_token_id: TokenId | None = None
    eos_token_id: TokenId | None = None
    eot_token_id: TokenId | None = None
    eom_token_id: TokenId | None = None


def fields_of(file: GgufFile, architecture: str) -> GgufFields:
    """The checked metadata of a model of this architecture. Raises ConfigError."""
    return checked(file.metadata, _schema(architecture), str(file.path))


@functools.cache
def _schema(architecture: str) -> type[GgufFields]:
    """The same fields under the keys of an architecture."""
    keys = {name: f"{architecture}.{key}" for name, key in _OF_ARCHITECTURE.items()} | _OF_TOKENS
    fields: list[Any] = [
        (field.name, field.type, field.default)
        for field in msgspec.structs.fields(GgufFields)
        if not field.required
    ]
    required: list[Any] = [
        (field.name, field.type) for field in msgspec.structs.fields(GgufFields) if field.required
    ]
    schema: Any = msgspec.defstruct(
        "GgufFields", required + fields, bases=(GgufFields,), rename=keys, frozen=True
    )
    return schema  # type: ignore[no-any-return]
