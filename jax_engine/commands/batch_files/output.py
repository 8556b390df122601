"""The output file: what it has already, and how it grows."""

import os
import sys
from collections import deque
from pathlib import Path
from typing import Any, BinaryIO, Self

import msgspec

from jax_engine.checks import shown
from jax_engine.commands.batch_files.lines import Line, digest
from jax_engine.commands.batch_files.results import ID
from jax_engine.errors import ConfigError


class Output:
    """Grows by whole lines. Those in OpenAI's batch format come when they are ready, the others in
    the order of the input.

    Attributes:
        done: the lines of the input that it answers, each with its custom id's digest.
        failed: how many of its lines are errors.
    """

    def __init__(self, file: BinaryIO, path: str) -> None:
        self.done: dict[int, int] = {}
        self.failed = 0
        self._file, self._path = file, path
        self._broken = False
        self._order: deque[int] = deque()
        self._ready: dict[int, bytes] = {}

    @classmethod
    def open(cls, path: str, *, overwrite: bool) -> Self:
        """Opens a file, or makes it; "-" is the standard output.

        Raises:
            ConfigError: it cannot be had, or holds something else.
        """
        if path == "-":
            return cls(sys.stdout.buffer, path)
        try:
            file = Path(path).expanduser().open("wb+" if overwrite else "ab+")
        except OSError as error:
            raise ConfigError(f"the output {path}: {error.strerror}") from error
        found = cls(file, path)
        if Path(path).expanduser().is_file():  # a device such as /dev/full may have no end
            found._read_done(path)
        return found

    def _read_done(self, path: str) -> None:
        """Finds what is done, and removes a torn last line."""
        self._file.seek(0)
        end = 0
        for raw in self._file:
            if not raw.endswith(b"\n"):
                break
            number, custom_id, failed = _what(raw, path)
            self.done[number] = digest(custom_id)
            self.failed += failed
            end += len(raw)
        self._file.truncate(end)
        self._file.seek(end)

    def has(self, line: Line) -> bool:
        """
        Raises:
            ConfigError: it has an answer to another request in this line's place.
        """
        found = self.done.get(line.number)
        if found is not None and found != line.digest:
            raise ConfigError(
                f"the output has another request's answer for line {line.number}, whose custom_id "
                f"is {shown(line.custom_id)}: it is of another input. --overwrite replaces it"
            )
        return found is not None

    def expect(self, line: Line) -> None:
        """A line will be written. Called in the order of the input."""
        if not line.of_batch:
            self._order.append(line.number)

    def write(self, line: Line, text: bytes) -> int:
        """Takes a line that is expected; returns how many are written now.

        Raises:
            ConfigError: the file takes no more, such as on a full disk.
        """
        if line.of_batch:
            self._append(text)
            return 1
        self._ready[line.number] = text
        written = 0
        while self._order and self._order[0] in self._ready:
            self._append(self._ready.pop(self._order.popleft()))
            written += 1
        return written

    def _append(self, text: bytes) -> None:
        try:
            self._file.write(text)
            self._file.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            self._broken = True
            raise ConfigError(
                f"the output {self._path}: {error.strerror}: the same command goes on with the rest"
            ) from error

    def close(self) -> None:
        """Closes the file."""
        if self._file is sys.stdout.buffer:
            return
        try:
            self._file.close()
        except OSError:  # it tries once more to write what it could not
            if not self._broken:
                raise


def same_file(one: str, other: str) -> bool:
    """Whether both are names of one file."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def _what(raw: bytes, path: str) -> tuple[int, str | None, bool]:
    """The input's line that a line of the output answers, its custom id, and whether it failed."""
    try:
        found: dict[str, Any] = msgspec.json.decode(raw)
        if "line" in found:
            return int(found["line"]), None, "error" in found
        number = int(found["id"].removeprefix(ID))
        response = found["response"]
        failed = response is None or response["status_code"] != 200
        return number, found["custom_id"], failed
    except (msgspec.DecodeError, LookupError, TypeError, ValueError, AttributeError):
        raise ConfigError(
            f"{path} exists and is not an output of this command: name another, or --overwrite it"
        ) from None
