"""Which family serves which architecture name of `config.json`."""

from collections.abc import Mapping
from typing import Any, Protocol

from jax_engine.errors import ConfigError
from jax_engine.file_schema import checked
from jax_engine.models.config import ModelConfig
from jax_engine.models.families import llama, mistral
from jax_engine.models.families.hf_config import FILE
from jax_engine.models.schemas import ArchitectureFields


class Family(Protocol):
    """What a file under families/ declares (see docs: adding a model)."""

    ARCHITECTURE: str
    WEIGHTS: dict[str, tuple[str, ...]]
    IGNORED_SUFFIXES: tuple[str, ...]

    def from_hf(self, raw: Mapping[str, Any]) -> ModelConfig: ...


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


def config_from_hf(raw: Mapping[str, Any]) -> ModelConfig:
    """ModelConfig from a `config.json` dictionary, by its `architectures`. Raises ConfigError."""
    if not raw.get("architectures"):
        raise ConfigError("config.json: `architectures` is missing or empty; which model is it?")
    names = checked(raw, ArchitectureFields, FILE).architectures
    known = [name for name in names if name in FAMILIES]
    return family_of(known[0] if known else names[0]).from_hf(raw)
