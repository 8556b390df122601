"""Opens a checkpoint: its configuration, and its tensors, checked against the configuration.

The configuration is config.json or params.json of a directory, or the metadata of a GGUF file. That
the tensors are those of the model is checked before any is read.

Checkpoints of a bare decoder have names without the first part: "wte.weight" of GPT-2. Transformers
saves a decoder without its head so, and reads it as the model with its head. Published checkpoints
of GPT-2, BLOOM and OPT are of this kind.
"""

import dataclasses
import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jax_engine.config.engine_config import (
    DEQUANTIZED,
    W8A8,
    ConfigFormat,
    HfOverrides,
    LoadFormat,
)
from jax_engine.errors import ConfigError, WeightsError
from jax_engine.models.checkpoints.cache_scales import SCALES
from jax_engine.models.checkpoints.file_schema import checked, read_json
from jax_engine.models.checkpoints.files_source import FilesSource
from jax_engine.models.checkpoints.gguf import open_gguf
from jax_engine.models.checkpoints.mistral_names import MistralNames
from jax_engine.models.checkpoints.mistral_params import read_fields
from jax_engine.models.checkpoints.old_names import with_present_names
from jax_engine.models.checkpoints.quantization.method import RawSource
from jax_engine.models.checkpoints.quantization.quantized_source import open_quantized
from jax_engine.models.checkpoints.weight_layouts import MISTRAL
from jax_engine.models.families.hf_config import token_ids
from jax_engine.models.hf_fields import overridden
from jax_engine.models.hf_schemas import GenerationFields
from jax_engine.models.leaves import Leaf, transforms_of
from jax_engine.models.model_config import ModelConfig, recipe_of_directory
from jax_engine.models.pooling_heads import SUFFIXES
from jax_engine.models.registry import config_from_hf
from jax_engine.weights.tensor_source import TensorSource
from jax_engine.weights.transforms import Declaration, Shape, Transform, transform_of

if TYPE_CHECKING:
    from jax_engine.models.checkpoints.gguf.gguf_file import GgufFile


def check_max_model_len(config: ModelConfig, max_model_len: int | None) -> None:
    """Raises ConfigError if `max_model_len` is below 1 or exceeds the model's positions."""
    if max_model_len is not None and not 1 <= max_model_len <= config.max_context_len:
        raise ConfigError(
            f"max_model_len must be between 1 and this model's {config.max_context_len} positions "
            f"(RoPE scaling included), got {max_model_len}."
        )


def read_config(
    source: Path,
    gguf: "GgufFile | None",
    hf_overrides: HfOverrides | None,
    config_format: ConfigFormat = "auto",
) -> ModelConfig:
    """ModelConfig of a directory, or of an open GGUF file. Raises ConfigError or WeightsError."""
    if gguf is None:
        return read_hf_config(source, hf_overrides, config_format)
    if hf_overrides:
        raise ConfigError(f"hf_overrides need a config.json, but {source} is a GGUF file.")
    from jax_engine.models.checkpoints.gguf.gguf_source import config_from_gguf

    return config_from_gguf(gguf)


def read_hf_config(
    directory: Path,
    hf_overrides: HfOverrides | None = None,
    config_format: ConfigFormat = "auto",
) -> ModelConfig:
    """ModelConfig of a directory. Raises ConfigError or WeightsError.

    Adds the end-of-sequence ids of generation_config.json, where chat models list several.
    """
    fields = read_fields(directory, config_format)
    config = config_from_hf(overridden(fields, hf_overrides))
    recipe = recipe_of_directory(directory, "CLS" if config.spec.is_encoder else "LAST")
    config = dataclasses.replace(config, pooling=recipe)
    generation = directory / "generation_config.json"
    if not os.path.lexists(generation):  # a link to nothing is a broken file
        return config
    extra = checked(read_json(generation), GenerationFields, generation.name).eos_token_id
    eos = tuple(dict.fromkeys((*config.eos_token_ids, *token_ids(extra))))
    return dataclasses.replace(config, eos_token_ids=eos)


def with_first_part(source: TensorSource, embedding: str, heads: Collection[str]) -> TensorSource:
    """The same tensors by the names of a model with its head, if all lack the first part.

    Args:
        embedding: the name of the embedding's matrix, with the first part.
        heads: names that never have the first part.
    """
    first, _, bare = embedding.partition(".")
    names = source.names()
    if embedding in names or bare not in names:
        return source
    return BareNames(source, f"{first}.", heads)


class BareNames:
    """Tensors whose names lack their first part, but for those of the head."""

    def __init__(self, source: TensorSource, first: str, heads: Collection[str]) -> None:
        self.location: Path = source.location
        self._source, self._first, self._heads = source, first, heads

    def names(self) -> Collection[str]:
        found = self._source.names()
        return [name if name in self._heads else self._first + name for name in found]

    def shape(self, name: str) -> tuple[int, ...]:
        return self._source.shape(name.removeprefix(self._first))

    def read_into(self, name: str, out: np.ndarray) -> None:
        self._source.read_into(name.removeprefix(self._first), out)

    def describe(self, name: str) -> str:
        return self._source.describe(name.removeprefix(self._first))


# By how tensors of other things than a language model are called.
_HINTS = {
    r"\.lora_[AB]\b|^base_model\.": "is of a LoRA adapter: merge it with peft's merge_and_unload, "
    "and give the merged model",
    r"(^|\.)(v|value)_?head\.": "is of a value head of reinforcement learning, which generation "
    "does not use: save the model without it",
    r"(^|\.)(tok_embeddings|attention\.w[qkvo]|feed_forward\.w\d)\.": "is named as in Meta's or "
    "Mistral's own code: name the files as they do (consolidated.safetensors and params.json), or "
    "give the model in Hugging Face layout",
    r"(^|\.)(score|classifier)\.": "is of a head for scores: config.json's architectures should "
    "end in ForSequenceClassification or ForTokenClassification",
    r"vis(ual|ion)|image|audio": "is of a part for images or sound: only text models are read",
}


def check_tensors(
    source: TensorSource,
    leaves: Mapping[str, Leaf],
    transforms: Mapping[str, Transform],
    *,
    num_layers: int,
    extra_layers: int = 0,
    ignored_suffixes: tuple[str, ...],
) -> None:
    """
    Args:
        leaves: The decoder's parameters, by dotted name.
        transforms: How each is made of tensors.
        extra_layers: How many layers behind the last one may be there; they are not needed.
        ignored_suffixes: Endings of the names of tensors that are not needed.

    Raises:
        WeightsError: A tensor is missing, of another shape, or unexpected.
    """
    starts = starts_of_layers(transforms.values())
    needed = [name for name in source.names() if not name.endswith(ignored_suffixes)]
    _check_num_layers(source, starts, num_layers, needed)
    wanted: dict[str, Shape] = {}
    for name, transform in transforms.items():
        wanted.update(leaves[name].tensors(transform))
    present = set(source.names())
    missing = [name for name in wanted if name not in present]
    if missing:
        raise WeightsError(
            f"{source.location}: {len(missing)} of {len(wanted)} tensors are missing, "
            f"{missing[0]} first; found {len(present)}. "
            f"{_hint({*needed} - {*wanted}, 'Is the checkpoint complete?')}"
        )
    _check_shapes(source, wanted)
    extra = range(num_layers, num_layers + extra_layers)
    ignored = tuple(f"{start}{layer}." for start in starts for layer in extra)
    if extra:
        ignored += NAMED_APART
    unexpected = {name for name in set(needed) - set(wanted) if not name.startswith(ignored)}
    if unexpected:
        raise WeightsError(
            f"{source.location}: {len(unexpected)} tensors have no place in this architecture, "
            f"{min(unexpected)} first. " + _hint(unexpected, "Is config.json's architecture right?")
        )


def _hint(names: Collection[str], otherwise: str) -> str:
    """What to do about tensors that have no place, by the first whose kind is known."""
    known = (
        f"{name} {hint}."
        for name in sorted(names)
        for kind, hint in _HINTS.items()
        if re.search(kind, name)
    )
    return next(known, otherwise)


def starts_of_layers(transforms: Iterable[Transform]) -> set[str]:
    """What the names of layers' tensors begin with, before the layer's number."""
    templates = [template for transform in transforms for template in transform.templates()]
    return {one.partition("{layer}")[0] for one in templates if "{layer}" in one}


def _check_num_layers(
    source: TensorSource, starts: set[str], num_layers: int, needed: Collection[str]
) -> None:
    """Runs first: listing the tensors of a damaged count of ten million layers takes minutes."""
    pattern = re.compile(rf"(?:{'|'.join(map(re.escape, starts))})(\d+)\.")
    found = {match[1] for match in map(pattern.match, source.names()) if match}
    if num_layers > len(found):
        raise WeightsError(
            f"{source.location}: the configuration has {num_layers} layers, but there are "
            f"tensors of {len(found)}. "
            f"{_hint(needed, 'Do weights and configuration belong together?')}"
        )


def _check_shapes(source: TensorSource, wanted: Mapping[str, Shape]) -> None:
    for name, shape in wanted.items():
        found = source.shape(name)
        if found != shape:
            raise WeightsError(
                f"{source.describe(name)}: expected shape {shape} from the model's "
                f"configuration, found {found}. Do weights and configuration belong together?"
            )


HEAD = "lm_head"
# What guesses further tokens, in checkpoints that do not number it as layers.
NAMED_APART = ("model.mtp_",)
# What old checkpoints hold although it follows from the configuration: frequencies and masks.
DERIVED: tuple[str, ...] = (
    "rotary_emb.inv_freq",
    ".attn.bias",
    ".attn.masked_bias",
    ".attention.bias",
    ".attention.masked_bias",
)
KINDS = ("weight", "bias")
# What encoders were trained with, and no embedding needs: heads that guess tokens or sentences.
OF_PRETRAINING: tuple[str, ...] = (
    "embeddings.position_ids",
    *(
        f"{module}.{kind}"
        for module in (
            "pooler.dense",
            "predictions.transform.dense",
            "predictions.transform.LayerNorm",
            "predictions.decoder",
            "cls.seq_relationship",
            "lm_head.dense",
            "lm_head.layer_norm",
            "lm_head.decoder",
            "head.dense",
            "head.norm",
            "decoder",
        )
        for kind in KINDS
    ),
    "predictions.bias",
    "lm_head.bias",
)


@dataclasses.dataclass(frozen=True)
class CheckedTensors:
    """An open checkpoint in which all tensors were found, with the configured shapes."""

    source: TensorSource
    transforms: Mapping[str, Transform]


def tensor_source(path: Path) -> TensorSource:
    """The tensors of a model's directory or GGUF file. Raises WeightsError."""
    gguf = open_gguf(path) if path.is_file() else None
    return open_source(path, gguf, read_config(path, gguf, None))


def open_source(
    path: Path,
    gguf: "GgufFile | None",
    config: ModelConfig,
    quantization: str | None = None,
    *,
    load_format: LoadFormat = "auto",
    config_format: ConfigFormat = "auto",
) -> TensorSource:
    """The tensors of an open GGUF file, or of a directory.

    Args:
        load_format, config_format: which files of a directory are read, as in `EngineConfig`.

    Raises:
        ConfigError: The checkpoint was not quantised by this method.
        WeightsError: A file is damaged.
    """
    if gguf is None:
        wanted = None if quantization in (DEQUANTIZED, W8A8) else quantization
        fields = read_fields(path, config_format)
        return open_quantized(open_files(path, fields, load_format), fields, wanted)
    if quantization not in (None, DEQUANTIZED, W8A8, "gguf"):
        raise ConfigError(f"quantization={quantization!r}, but {path} is a GGUF file.")
    from jax_engine.models.checkpoints.gguf.gguf_source import GgufSource

    return GgufSource(gguf, config)


def open_files(
    directory: Path, fields: Mapping[str, Any], load_format: LoadFormat = "auto"
) -> RawSource:
    """The tensors of a directory as they are stored, by Hugging Face's names. Raises WeightsError.

    Args:
        fields: those of config.json, or of params.json in the same words.
    """
    files = FilesSource(directory, load_format)
    return MistralNames(files, fields) if files.layout is MISTRAL else with_present_names(files)


def checked_tensors(
    source: TensorSource, config: ModelConfig, leaves: Mapping[str, Leaf]
) -> CheckedTensors:
    ignored, declared = DERIVED + SCALES, config.weights
    own = list(SUFFIXES)
    if config.head is not None:
        own += [f"{name}.{kind}" for name in config.head.layers.modules for kind in KINDS]
        ignored += tuple(own)
    if config.spec.is_encoder:
        ignored += OF_PRETRAINING
    heads = _names(declared[HEAD]) if HEAD in declared else []
    if config.spec.tied:  # some checkpoints store it once more
        ignored += tuple(name for name in heads if name.endswith("weight"))
    source = with_first_part(source, _names(declared["embed"])[0], {*heads, *own})
    transforms = transforms_of(leaves, declared)
    check_tensors(
        source,
        leaves,
        transforms,
        num_layers=config.spec.num_layers,
        extra_layers=config.extra_layers,
        ignored_suffixes=ignored,
    )
    return CheckedTensors(source, transforms)


def _names(declared: Declaration) -> list[str]:
    """The tensors of the weight and of the bias of a module."""
    found = transform_of(declared).templates()
    return [name.replace("{kind}", kind) for name in found for kind in KINDS]
