"""Reads a model's text and JSON files, and checks their data against declared schemas.

A schema is a `msgspec.Struct`: types, ranges, defaults. Undeclared fields are ignored, since files
hold many that are not used here.

A download or a copy that went wrong leaves something else in the place of a file. Readers that
cannot read a file ask `describe_broken_file` for their message: their own error would name a byte
of a page of HTML.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from jax_engine.errors import ConfigError, JaxEngineError, WeightsError

_START = 256  # bytes that are looked at
_KINDS = {
    b"version https://git-lfs": "It is a pointer of git LFS, and not the file itself: run "
    "`git lfs pull` in its directory, or download the file",
    b"<": "It is a page in HTML or XML, such as a login or an error: download the file again",
    b"\xff\xfe": "It is text in UTF-16: save it in UTF-8",
    b"\xfe\xff": "It is text in UTF-16: save it in UTF-8",
    b"PK\x03\x04": "It is a zip archive: unpack it, or download the file that is in it",
    b"\x1f\x8b": "It is compressed with gzip: unpack it",
}
_COPY = "copy what links lead to, too (cp -L, rsync -L), or download it again"


def describe_broken_file(path: Path) -> str | None:
    """A sentence on what a file is, by its first bytes, and what to do; None: nothing is known."""
    if os.path.islink(path) and not path.exists():
        return f"It is a link to {os.readlink(path)}, which is not there: {_COPY}."
    try:
        with path.open("rb") as file:
            start = file.read(_START)
    except OSError:
        return None
    if not start:
        return "It is empty: download it again."
    text = start.lstrip()
    found = (
        what for kind, what in _KINDS.items() if start.startswith(kind) or text.startswith(kind)
    )
    return next((f"{what}." for what in found), None)


def dead_links(files: Iterable[Path]) -> str:
    """A sentence on the first of these that is a link to nothing; "": none is."""
    dead = next((one for one in sorted(files) if one.is_symlink() and not one.exists()), None)
    return (
        ""
        if dead is None
        else f" {dead.name} is a link to {os.readlink(dead)}, which is not there: {_COPY}."
    )


Size = Annotated[int, Meta(ge=1, le=2**31 - 1)]  # fits a 32-bit index
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Positive = Annotated[float, Meta(gt=0, le=1e30)]  # the bound excludes infinity
NotNegative = Annotated[float, Meta(ge=0, le=1e30)]

MAX_FILE_BYTES = 64 << 20  # the index of a model of a trillion parameters has a few MiB
_WORDS = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "a dictionary",
}


def checked[T](
    raw: object, schema: type[T], where: str, error: type[JaxEngineError] = ConfigError
) -> T:
    """Fills the schema from a file's data.

    Args:
        where: The file's name in messages.
        error: The type of error to raise.

    Raises:
        JaxEngineError: An `error`, with the file, the field, its value and what is expected.
    """
    try:
        return msgspec.convert(raw, schema)
    except (msgspec.ValidationError, RecursionError) as problem:
        raise error(_in_words(raw, where, str(problem))) from None


def read_text(path: Path) -> str:
    """Text of a small file, at most MAX_FILE_BYTES. Raises WeightsError."""
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise ValueError(f"it has {size} bytes, at most {MAX_FILE_BYTES} are read")
        return path.read_text(encoding="utf-8-sig")  # some editors begin a file with a mark
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON file that must hold a dictionary. Raises WeightsError."""
    text = read_text(path)
    try:
        raw = json.loads(text)
        if "\\u" in text:  # a lone surrogate is not text
            json.dumps(raw, ensure_ascii=False).encode()
    except ValueError as error:
        raise _unreadable(path, error) from error
    except RecursionError:
        raise WeightsError(f"{path} is unreadable: its values are nested too deeply.") from None
    if not isinstance(raw, dict):
        raise WeightsError(f"{path} must hold a JSON object, found {type(raw).__name__}.")
    return raw


def _unreadable(path: Path, error: Exception) -> WeightsError:
    return WeightsError(
        " ".join(filter(None, (f"{path} is unreadable: {error}.", describe_broken_file(path))))
    )


def short(value: object) -> str:
    """A value as messages show it: cut if it is long."""
    if isinstance(value, Mapping | list | tuple) and len(value) > 8:
        return f"a {type(value).__name__} of {len(value)}"
    try:
        text = repr(value)
    except (ValueError, RecursionError) as error:  # an integer of 5,000 digits, deep nesting
        return f"a {type(value).__name__} ({error})"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _in_words(raw: object, where: str, problem: str) -> str:
    """Rewrites msgspec's message ("Expected `int` >= 1 - at `$.a.b`"), and adds the value."""
    missing = re.fullmatch(r"Object missing required field `(.+?)`(?: - at `\$\.(.+)`)?", problem)
    if missing:
        field = ".".join(part for part in (missing[2], missing[1]) if part)
        return f"{where}: {field} is missing."
    what, _, path = problem.rstrip("`").partition(" - at `$")
    expected = what.partition(", got ")[0].removeprefix("Expected ").replace("`", "")
    expected = re.sub(r"\b[a-z]+\b", lambda word: _WORDS.get(word[0], word[0]), expected)
    expected = expected.replace(" | ", " or ").replace("Number out of range", "in range")
    found = _value_at(raw, path)
    return f"{where}: {path.lstrip('.') or 'it'} must be {expected}, got {short(found)}."


def _value_at(raw: Any, path: str) -> object:
    """The value at msgspec's path ".a.b[0]"; keys may have dots. "[...]" is any key of a dict."""
    if not path:
        return raw
    if path.startswith("[...]"):
        return raw
    index = re.match(r"\[(\d+)\]", path)
    if index:
        return _value_at(raw[int(index[1])], path[index.end() :])
    for key in sorted((key for key in raw if path.startswith(f".{key}")), key=len, reverse=True):
        return _value_at(raw[key], path[len(key) + 1 :])
    return raw
