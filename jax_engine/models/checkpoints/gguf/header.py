"""What a GGUF file's metadata say of its model, by config.json's names, for an architecture to use.

Keys begin with the architecture's name, as in `qwen2.block_count`; what follows it is the same for
all architectures. Their types and ranges are checked. Rotary embeddings become `rope_parameters`,
as config.json describes them. `Architecture` is what one of llama.cpp's architectures declares.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from jax_engine.errors import ConfigError, WeightsError
from jax_engine.model_spec import ModelSpec
from jax_engine.models.checkpoints.file_schema import NotNegative, Positive, Size, TokenId, checked
from jax_engine.models.checkpoints.gguf import end_tokens
from jax_engine.models.checkpoints.gguf.gguf_file import GgufFile
from jax_engine.models.checkpoints.gguf.gguf_tensors import decode
from jax_engine.models.families.hf_config import FULL, SLIDING
from jax_engine.models.hf_schemas import Epsilon, Theta
from jax_engine.weights.transforms import Declaration

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


FACTORS, LONG, SHORT = "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"


def shortest(value: float) -> float:
    """The shortest decimal of a float32: 1e-05 rather than 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def rope_of(file: GgufFile, fields: GgufFields) -> dict[str, Any]:
    """The embedding of all layers, or of those that see all. Raises WeightsError."""
    rope: dict[str, Any] = {"rope_theta": shortest(fields.freq_base)}
    if LONG in file.tensors and SHORT in file.tensors:
        return rope | _longrope(file, fields)
    scaling = _scaling(fields)
    if FACTORS in file.tensors:
        # Divisors of the frequencies, which a scaling divides once more. Alone they are the result
        # of llama3's formula, whose factor has no effect.
        rope["frequency_factors"] = _positive(file, FACTORS)
        scaling = scaling or {"rope_type": "llama3", "factor": 1.0}
    return rope | scaling


def _scaling(fields: GgufFields) -> dict[str, Any]:
    """How the context is stretched by the metadata; empty: not at all."""
    linear = "none" if fields.scale_linear is None else "linear"
    kind = linear if fields.scaling_type is None else fields.scaling_type
    factor = fields.scale_linear if fields.scaling_factor is None else fields.scaling_factor
    if kind == "none" or factor == 0:
        return {}
    factor = 1.0 if factor is None else factor
    found = {"rope_type": kind, "factor": shortest(factor)} | _original_context(fields)
    return found | _yarn(fields, factor) if kind == "yarn" else found


def _yarn(fields: GgufFields, factor: float) -> dict[str, Any]:
    """What YaRN has beside a factor."""
    betas = {"beta_fast": fields.scaling_beta_fast, "beta_slow": fields.scaling_beta_slow}
    found = {name: shortest(value) for name, value in betas.items() if value is not None}
    if fields.scaling_attention_factor is not None:
        # llama.cpp multiplies it into YaRN's own factor
        own = 1.0 + 0.1 * float(np.log(factor))
        found["attention_factor"] = shortest(fields.scaling_attention_factor) * own
    return found


def _longrope(file: GgufFile, fields: GgufFields) -> dict[str, Any]:
    """Phi-3's two sets of divisors; without a factor of attention its formula applies."""
    rope: dict[str, Any] = {
        "rope_type": "longrope",
        "short_factor": _positive(file, SHORT),
        "long_factor": _positive(file, LONG),
    }
    if fields.scaling_attention_factor is not None:
        rope["attention_factor"] = fields.scaling_attention_factor
    return rope | _original_context(fields)


def _original_context(fields: GgufFields) -> dict[str, Any]:
    original = fields.scaling_original_context
    return {"original_max_position_embeddings": original} if original else {}


def _positive(file: GgufFile, name: str) -> list[float]:
    """Divisors of the frequencies. Raises WeightsError if one is not positive."""
    values = decode(file, name, 0, math.prod(file.tensors[name].shape))
    wrong = values[~((values > 0) & np.isfinite(values))]
    if wrong.size:
        raise WeightsError(f"{file.path}, tensor {name}: values must be positive, got {wrong[0]}.")
    return [shortest(value) for value in values]


class Header:
    """A file's metadata and table of tensors, as declarations ask for them.

    Raises:
        ConfigError: a field is missing, or has a wrong type or value.
        WeightsError: the file has fewer layers or experts than it says, or no embedding.
    """

    def __init__(self, file: GgufFile, architecture: str):
        self.file, self.architecture = file, architecture
        self.fields: GgufFields = fields_of(file, architecture)
        found = len({match[1] for match in map(_LAYER.match, file.tensors) if match})
        if self.fields.block_count > found:
            raise WeightsError(
                f"{file.path}: the configuration has {self.fields.block_count} layers, but there "
                f"are tensors of {found}. Do weights and configuration belong together?"
            )

    def has(self, name: str) -> bool:
        return name in self.file.tensors

    @property
    def head_dim(self) -> int:
        return self.fields.key_length or self.fields.embedding_length // self.fields.head_count

    @property
    def kv_heads(self) -> int:
        return self.fields.head_count_kv or self.fields.head_count

    @property
    def rotated_part(self) -> float:
        """Which part of a head is rotated."""
        return (self.fields.rotated or self.head_dim) / self.head_dim

    @cached_property
    def rope(self) -> dict[str, Any]:
        return rope_of(self.file, self.fields)

    @cached_property
    def common(self) -> dict[str, Any]:
        """Fields of config.json that have the same names in most families."""
        fields = self.fields
        embedding = self.file.tensors.get("token_embd.weight")
        if embedding is None:
            raise WeightsError(f"{self.file.path}: tensor token_embd.weight is missing.")
        return {
            "vocab_size": embedding.shape[0],
            "hidden_size": fields.embedding_length,
            "intermediate_size": fields.feed_forward_length,
            "num_hidden_layers": fields.block_count,
            "num_attention_heads": fields.head_count,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "max_position_embeddings": fields.context_length,
            "rope_parameters": self.rope,
            "tie_word_embeddings": not self.has("output.weight"),
            "eos_token_id": end_tokens(self.file.metadata),
            "bos_token_id": fields.bos_token_id,
        } | self._norms()

    def _norms(self) -> dict[str, Any]:
        """The epsilon, under the names that families give it."""
        rms, layer = self.fields.rms_epsilon, self.fields.norm_epsilon
        if rms is not None:
            return {"rms_norm_eps": shortest(rms)}
        if layer is None:
            raise ConfigError(
                f"{self.file.path}: {self.architecture}.attention.layer_norm_rms_epsilon (or "
                "layer_norm_epsilon) is missing."
            )
        names = ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon")
        return dict.fromkeys(names, shortest(layer))

    def config(self, architecture: str, *parts: Mapping[str, Any], **own: Any) -> dict[str, Any]:
        """config.json of a Hugging Face architecture: the common fields, more of them, its own."""
        found = self.common | {"architectures": [architecture]}
        for part in parts:
            found |= part
        return found | own

    @property
    def windows(self) -> dict[str, Any]:
        """The window, and which layers have it if the file says so."""
        pattern, window = self.fields.window_pattern, self.fields.sliding_window or None
        found: dict[str, Any] = {"sliding_window": window}
        if isinstance(pattern, int):
            layers = range(1, self.fields.block_count + 1)
            pattern = [layer % pattern != 0 for layer in layers]
        if pattern is not None:
            found["layer_types"] = [SLIDING if one else FULL for one in pattern]
        return found


_LAYER = re.compile(r"blk\.(\d+)\.")
Undo = Callable[[ModelSpec, str], Declaration]


@dataclasses.dataclass(frozen=True)
class Architecture:
    """One of llama.cpp's architectures.

    Attributes:
        name: `general.architecture`.
        config: the config.json that Hugging Face's model would have.
        undo: how a tensor of Hugging Face's is made of the stored one, by the end of its name;
            tensors without an entry are stored as they are. The names are in the gguf package.
    """

    name: str
    config: Callable[[Header], dict[str, Any]]
    undo: Mapping[str, Undo] = dataclasses.field(default_factory=dict)

    def undo_of(self, name: str) -> Undo | None:
        """What is to be undone for a tensor; an entry holds for weight and bias, or names one."""
        for end, undo in self.undo.items():
            if name.endswith((end, f"{end}.weight", f"{end}.bias")):
                return undo
        return None
