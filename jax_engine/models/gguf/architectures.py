"""The architectures of llama.cpp whose files are read."""

from jax_engine.errors import ConfigError
from jax_engine.file_schema import short
from jax_engine.models.gguf.architecture import Architecture
from jax_engine.models.gguf.fused import ARCHITECTURES as FUSED
from jax_engine.models.gguf.gemmas import ARCHITECTURES as GEMMAS
from jax_engine.models.gguf.granites import ARCHITECTURES as GRANITES
from jax_engine.models.gguf.llamas import ARCHITECTURES as LLAMAS
from jax_engine.models.gguf.others import ARCHITECTURES as OTHERS
from jax_engine.models.gguf_file import GgufFile

ARCHITECTURES: dict[str, Architecture] = {
    one.name: one for one in (*LLAMAS, *GEMMAS, *FUSED, *GRANITES, *OTHERS)
}


def architecture_of(file: GgufFile) -> Architecture:
    """The declarations of a file's architecture. Raises ConfigError that lists the known ones."""
    name = file.metadata.get("general.architecture")
    found = ARCHITECTURES.get(name) if isinstance(name, str) else None
    if found is None:
        raise ConfigError(
            f"{file.path}: GGUF architecture {short(name)} is not supported; known: "
            f"{', '.join(sorted(ARCHITECTURES))}."
        )
    return found
