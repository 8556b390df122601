"""Split GGUF files: the first part has the metadata, each its own tensors."""

import re
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from jax_engine.errors import WeightsError
from jax_engine.file_schema import checked
from jax_engine.models.gguf_file import GgufFile

NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


class SplitFields(msgspec.Struct, frozen=True, rename={"no": "split.no", "count": "split.count"}):
    """Which part a file is, counted from 0, of how many; a file that is not split has neither."""

    no: Annotated[int, Meta(ge=0, le=99_998)] = 0
    count: Annotated[int, Meta(ge=0, le=99_999)] = 0


def join_parts(file: GgufFile) -> GgufFile:
    """Adds to a split file's first part the tensors of the others, which lie beside it.

    Raises:
        WeightsError: It is not the first part, another is missing, or they do not fit.
    """
    split = _split(file)
    if split.count <= 1:
        return file
    name = NAME.fullmatch(file.path.name)
    if name is None or split.no or (int(name["number"]), int(name["count"])) != (1, split.count):
        raise WeightsError(
            f"{file.path} is part {split.no + 1} of {split.count} of a split GGUF file: give the "
            f"first, whose name ends in -00001-of-{split.count:05}.gguf, with the others beside it."
        )
    for number in range(2, split.count + 1):
        _add(
            file, file.path.with_name(f"{name['stem']}-{number:05}-of-{name['count']}.gguf"), number
        )
    return file


def _add(file: GgufFile, path: Path, number: int) -> None:
    count = _split(file).count
    if not path.is_file():
        raise WeightsError(
            f"{file.path} is split into {count} files, and {path.name} is missing. Download it too."
        )
    part = GgufFile(path)
    twice = sorted(file.tensors.keys() & part.tensors.keys())
    if twice or _split(part) != SplitFields(number - 1, count):
        why = f"tensor {twice[0]} is in both" if twice else "its split.no or split.count is another"
        raise WeightsError(
            f"{path} is not part {number} of {count} of {file.path}: {why}. Download both again."
        )
    file.tensors |= part.tensors


def _split(file: GgufFile) -> SplitFields:
    return checked(file.metadata, SplitFields, str(file.path), WeightsError)
