"""Opens GGUF files; importing this module does not need the `gguf` package."""

from pathlib import Path
from typing import TYPE_CHECKING

from jax_engine.missing_package import need

if TYPE_CHECKING:
    from jax_engine.models.gguf_file import GgufFile


def open_gguf(path: Path) -> "GgufFile":
    """A file with its tensors; of a split one, the first part, with the tensors of all.

    Raises:
        MissingPackageError: The `gguf` package is not installed.
        WeightsError: As for `GgufFile` and `join_parts`.
    """
    need("gguf", f"{path}, a GGUF file,")
    from jax_engine.models.gguf_file import GgufFile
    from jax_engine.models.gguf_parts import join_parts

    return join_parts(GgufFile(path))
