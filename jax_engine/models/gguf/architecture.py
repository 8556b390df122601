"""What an architecture of llama.cpp declares, and what a file of it says."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from jax_engine.errors import ConfigError, WeightsError
from jax_engine.model_spec import ModelSpec
from jax_engine.models.families.hf_config import FULL, SLIDING
from jax_engine.models.gguf.ends import end_tokens
from jax_engine.models.gguf.fields import GgufFields, fields_of
from jax_engine.models.gguf.rope import rope_of, shortest
from jax_engine.models.gguf_file import GgufFile
from jax_engine.weights.transforms import Declaration


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
