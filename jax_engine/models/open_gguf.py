"""Opens GGUF files; importing this module does not need the `gguf` package."""

from pathlib import Path
from typing import TYPE_CHECKING

from jax_engine.missing_package import need

if TYPE_CHECKING:
    from jax_engine.models.gguf_file import GgufFile


def open_gguf(path: Path) -> "GgufFile":
    """
    Raises:
        MissingPackageError: The `gguf` package is not installed.
        WeightsError: As for `GgufFile`.
    """
    need("gguf", f"{path}, a GGUF file,")
    from jax_engine.models.gguf_file import GgufFile

    return GgufFile(path)
