"""Files of requests and of answers, for `generate`.

A line of the input is a request, or there is something wrong with it. A line of the output is in
OpenAI's batch format, or has the few fields that matter. The output file knows which lines it has
already, and grows by those that are missing.
"""

import os
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self

import msgspec

from jax_engine.checks import shown
from jax_engine.errors import ConfigError

MAX_LINE = 32 << 20  # bytes, as of a server's request
URLS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings")
_BATCH_FIELDS = frozenset({"custom_id", "method", "url", "body"})
_BOM = "\ufeff".encode()  # which programs of Windows write before a text


class Line(NamedTuple):
    """
    Attributes:
        number: from 1 on, blank lines included.
        of_batch: whether it has OpenAI's batch format.
        problem: what is wrong with it; else `url` and `body` are a request.
    """

    number: int
    of_batch: bool
    custom_id: str | None = None
    url: str = ""
    body: Mapping[str, Any] = {}
    problem: str | None = None

    @property
    def digest(self) -> int:
        """A short stand-in for the custom id."""
        return digest(self.custom_id)


def digest(custom_id: str | None) -> int:
    """8 bytes for any custom id, so that a million of them need no memory worth speaking of."""
    return int.from_bytes(blake2b((custom_id or "").encode(), digest_size=8).digest())


class Reader:
    """Reads lines one by one.

    Args:
        as_text: each line is a prompt, and not JSON.
        defaults: fields of requests that are not in OpenAI's batch format.
    """

    def __init__(self, file: BinaryIO, defaults: Mapping[str, Any], *, as_text: bool) -> None:
        self._file, self._defaults, self._as_text = file, defaults, as_text
        self._of_batch = False  # as the line before: a line that cannot be read does not say it
        self._seen: dict[int, int] = {}

    def __iter__(self) -> Iterator[Line]:
        number = 0
        while raw := self._file.readline(MAX_LINE + 1):
            number += 1
            is_cut = len(raw) > MAX_LINE and not raw.endswith(b"\n")
            if number == 1:
                raw = raw.removeprefix(_BOM)
            if is_cut:
                self._skip_rest()
                yield self._bad(number, f"it must have at most {MAX_LINE} bytes")
            elif raw.strip():
                yield self._line(number, raw)

    def _skip_rest(self) -> None:
        while (rest := self._file.readline(MAX_LINE)) and not rest.endswith(b"\n"):
            pass

    def _bad(self, number: int, problem: str, custom_id: str | None = None) -> Line:
        message = f"line {number}: {problem}"
        return Line(number, self._of_batch, custom_id, problem=message)

    def _line(self, number: int, raw: bytes) -> Line:
        try:
            found = raw.decode().rstrip("\r\n") if self._as_text else msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._of_batch = self._of_batch or b'"custom_id"' in raw
            kind = "text in UTF-8" if self._as_text else "JSON"
            return self._bad(number, f"it is not {kind}: {error}")
        if self._as_text:
            return Line(number, False, None, URLS[1], {**self._defaults, "prompt": found})
        if not isinstance(found, dict):
            return self._bad(number, f"it must be a JSON object, got {shown(found)}")
        self._of_batch = not found.keys().isdisjoint(_BATCH_FIELDS)
        return self._batch_line(number, found) if self._of_batch else self._simple(number, found)

    def _simple(self, number: int, found: dict[str, Any]) -> Line:
        if ("prompt" in found) == ("messages" in found):
            return self._bad(number, "it must have either prompt or messages")
        if found.get("stream"):
            return self._bad(number, "stream must not be true in a file")
        url = URLS[0] if "messages" in found else URLS[1]
        return Line(number, False, None, url, {**self._defaults, **found})

    def _batch_line(self, number: int, found: dict[str, Any]) -> Line:
        name, url, body = found.get("custom_id"), found.get("url"), found.get("body")
        if not isinstance(name, str):
            return self._bad(number, f"custom_id must be a string, got {shown(name)}")
        first = self._seen.setdefault(digest(name), number)
        problem = None
        if first != number:
            problem = f"custom_id {shown(name)} is that of line {first}"
        elif found.get("method", "POST") != "POST":
            problem = f"method must be 'POST', got {shown(found['method'])}"
        elif url not in URLS:
            problem = f"url must be one of {', '.join(URLS)}, got {shown(url)}"
        elif unknown := sorted(found.keys() - _BATCH_FIELDS):
            problem = f"{shown(unknown[0])} is no field of a batch's line: the request is in body"
        elif not isinstance(body, dict):
            problem = f"body must be a JSON object, got {shown(body)}"
        elif body.get("stream"):
            problem = "stream must not be true in a file"
        if problem is not None:
            return self._bad(number, problem, name)
        return Line(number, True, name, str(url), body or {})


ID = "batch_req_"  # and the line's number in the input


def answered(line: Line, status: int, body: bytes) -> bytes:
    """The answer to a request, as HTTP would give it."""
    if not line.of_batch:
        return _written({"line": line.number} | _short(msgspec.json.decode(body)))
    response = {
        "status_code": status,
        "request_id": f"{ID}{line.number}",
        "body": msgspec.Raw(body),
    }
    return _written(_batch(line, response, None))


def refused(line: Line) -> bytes:
    """What is wrong with a line that is no request."""
    error = {"code": "invalid_line", "message": line.problem}
    if not line.of_batch:
        return _written({"line": line.number, "error": error})
    return _written(_batch(line, None, error))


def _batch(line: Line, response: Any, error: Any) -> dict[str, Any]:
    names = {"id": f"{ID}{line.number}", "custom_id": line.custom_id}
    return names | {"response": response, "error": error}


def _written(result: dict[str, Any]) -> bytes:
    return msgspec.json.encode(result) + b"\n"


def _short(body: dict[str, Any]) -> dict[str, Any]:
    """An answer's choice, or its choices, without what a file does not need."""
    if "error" in body:
        return body
    choices = [_choice(one) for one in body["choices"]]
    kept = {k: body[k] for k in ("usage", "prompt_token_ids", "prompt_logprobs") if k in body}
    return (choices[0] if len(choices) == 1 else {"choices": choices}) | kept


def _choice(choice: dict[str, Any]) -> dict[str, Any]:
    message = choice.pop("message", None)
    if message is not None:
        choice = {"text": message.pop("content")} | message | choice
    left_out = ("index", "role")
    return {k: v for k, v in choice.items() if k not in left_out and (k == "text" or v)}


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
