"""A line of the input as a request, or what is wrong with it."""

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, BinaryIO, NamedTuple

import msgspec

from jax_engine.checks import shown

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
        said = f"line {number}: {problem}"
        return Line(number, self._of_batch, custom_id, problem=said)

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
