"""Opens a model's tensors, and checks that they are those of its configuration."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from jax_engine.errors import ConfigError
from jax_engine.file_schema import read_json
from jax_engine.models.bare_names import with_first_part
from jax_engine.models.cache_scales import SCALES
from jax_engine.models.check_tensors import check_tensors
from jax_engine.models.config import ModelConfig
from jax_engine.models.heads import SUFFIXES
from jax_engine.models.leaves import Leaf, transforms_of
from jax_engine.models.open_gguf import open_gguf
from jax_engine.models.quantization.opening import open_quantized
from jax_engine.models.read_config import read_config
from jax_engine.models.safetensors_loader import SafetensorsSource
from jax_engine.modes import DEQUANTIZED, W8A8
from jax_engine.weights.tensor_source import TensorSource
from jax_engine.weights.transforms import Declaration, Transform, transform_of

if TYPE_CHECKING:
    from jax_engine.models.gguf_file import GgufFile

HEAD = "lm_head"
# What old checkpoints hold although it follows from the configuration: frequencies and masks.
DERIVED: tuple[str, ...] = (
    "rotary_emb.inv_freq",
    ".attn.bias",
    ".attn.masked_bias",
    ".attention.bias",
    ".attention.masked_bias",
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
    path: Path, gguf: "GgufFile | None", config: ModelConfig, quantization: str | None = None
) -> TensorSource:
    """The tensors of an open GGUF file, or of a directory.

    Raises:
        ConfigError: The checkpoint was not quantised by this method.
        WeightsError: A file is damaged.
    """
    if gguf is None:
        wanted = None if quantization in (DEQUANTIZED, W8A8) else quantization
        return open_quantized(SafetensorsSource(path), read_json(path / "config.json"), wanted)
    if quantization not in (None, DEQUANTIZED, W8A8, "gguf"):
        raise ConfigError(f"quantization={quantization!r}, but {path} is a GGUF file.")
    from jax_engine.models.gguf.source import GgufSource

    return GgufSource(gguf, config)


def checked_tensors(
    source: TensorSource, config: ModelConfig, leaves: Mapping[str, Leaf]
) -> CheckedTensors:
    ignored, declared = DERIVED + SCALES, config.weights
    if config.head is not None:
        ignored += SUFFIXES
    heads = _names(declared[HEAD]) if HEAD in declared else []
    if config.spec.tied:  # some checkpoints store it once more
        ignored += tuple(name for name in heads if name.endswith("weight"))
    source = with_first_part(source, _names(declared["embed"])[0], {*heads, *SUFFIXES})
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
    return [name.replace("{kind}", kind) for name in found for kind in ("weight", "bias")]
