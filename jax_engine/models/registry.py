"""Finds the family for an architecture name of `config.json`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from jax_engine.errors import ConfigError
from jax_engine.file_schema import checked
from jax_engine.model_spec import ModelSpec
from jax_engine.models.config import ModelConfig
from jax_engine.models.families import llama, mistral
from jax_engine.models.families.hf_config import FILE
from jax_engine.models.heads import head_config, split_architecture
from jax_engine.models.schemas import ArchitectureFields, MatryoshkaFields
from jax_engine.weights.transforms import Declaration


class Family(Protocol):
    """The declarations of a file under families/ (see docs: adding a model)."""

    ARCHITECTURE: str
    IGNORED_SUFFIXES: tuple[str, ...]

    def from_hf(self, raw: Mapping[str, Any]) -> ModelConfig: ...

    def specification(self, config: ModelConfig) -> ModelSpec: ...

    def weights(self, config: ModelConfig) -> Mapping[str, Declaration]: ...


FAMILIES: dict[str, Family] = {family.ARCHITECTURE: family for family in (llama, mistral)}


def family_of(architecture: str) -> Family:
    """The family of an architecture. Raises ConfigError that lists the known ones."""
    family = FAMILIES.get(architecture)
    if family is None:
        known = ", ".join(sorted(FAMILIES))
        raise ConfigError(
            f"model architecture {architecture!r} is not supported; known: {known}. "
            "Adding one takes a file in jax_engine/models/families/."
        )
    return family


def specification_of(config: ModelConfig) -> ModelSpec:
    """The layers of a model. Raises ConfigError."""
    return family_of(config.architecture).specification(config)


def config_from_hf(raw: Mapping[str, Any]) -> ModelConfig:
    """ModelConfig from a `config.json` dictionary, by its `architectures`. Raises ConfigError.

    A model with a head for scores (`models.heads`) uses its family's decoder.
    """
    if not raw.get("architectures"):
        raise ConfigError("config.json: `architectures` is missing or empty; which model is it?")
    names = checked(raw, ArchitectureFields, FILE).architectures
    found = [split_architecture(name) for name in names]
    name, task = next((one for one in found if one[0] in FAMILIES), (names[0], None))
    head = None if task is None else head_config(task, raw)
    if head is not None:
        # Such a checkpoint has no lm_head: the embedding stands in for it, and is never used so.
        raw = {**raw, "tie_word_embeddings": True}
    config = family_of(name).from_hf(raw)
    return replace(config, head=head, matryoshka_dimensions=_matryoshka(raw))


def _matryoshka(raw: Mapping[str, Any]) -> tuple[int, ...] | None:
    fields = checked(raw, MatryoshkaFields, FILE)
    if fields.matryoshka_dimensions:
        return tuple(fields.matryoshka_dimensions)
    return () if fields.is_matryoshka else None
