"""Who answers `chat` and `complete`, and the one who asks a server.

A source of answers is a model in this process (`local_model`) or a server that speaks OpenAI's API,
whose server-sent events are read here.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from jax_engine.checks import shown
from jax_engine.errors import ConfigError, JaxEngineError


class TextDelta(NamedTuple):
    """What is new in a sample of an answer."""

    sample: int
    text: str


class ServerError(JaxEngineError):
    """A server cannot be reached, or has answered with an error."""


class Source(Protocol):
    """
    Raises of its methods:
        JaxEngineError: there is no answer, or no rest of it.
        KeyboardInterrupt: Ctrl-C has ended the answer; the next one can be asked for.
    """

    def complete(self, prompt: str, fields: Mapping[str, Any]) -> Iterator[TextDelta]:
        """Continues a text.

        Args:
            fields: the request's fields, with OpenAI's and vLLM's names.
        """
        ...

    def chat(
        self, messages: Sequence[Mapping[str, Any]], fields: Mapping[str, Any]
    ) -> Iterator[TextDelta]:
        """Says what comes next in a conversation."""
        ...


def event_data(lines: Iterable[bytes]) -> Iterator[str]:
    """The data of each event, up to "[DONE]"."""
    data: list[str] = []
    for raw in lines:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        name, _, value = line.partition(":")
        if name == "data":
            data.append(value.removeprefix(" "))
        elif not line and data:  # an empty line ends an event
            whole, data = "\n".join(data), []
            if whole == "[DONE]":
                return
            yield whole


PATIENCE_S = 600.0  # for a server's next words


class Server:
    """A source of answers.

    Args:
        url: with or without `/v1` at its end.
        model: None: the first of those that the server has.

    Raises:
        ConfigError: it is not a URL.
    """

    def __init__(self, url: str, model: str | None, api_key: str | None) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ConfigError(f"--url {shown(url)}: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"--url must be like http://127.0.0.1:8000, got {shown(url)}")
        self._kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._address, self._url = (parts.hostname, port), url
        path = parts.path.rstrip("/")
        self._path = path if path.endswith("/v1") else f"{path}/v1"
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._given_model = model

    @cached_property
    def model(self) -> str:
        """The model's name."""
        if self._given_model is not None:
            return self._given_model
        with self._asked("GET", "/models") as answer:
            try:
                return str(json.loads(answer.read())["data"][0]["id"])
            except (ValueError, LookupError, TypeError):
                raise ServerError(
                    f"{self._url} does not say which models it has: give --model-name"
                ) from None

    def complete(self, prompt: str, fields: Mapping[str, Any]) -> Iterator[TextDelta]:
        """As `Source.complete`."""
        for choice in self._choices("/completions", {"prompt": prompt, **fields}):
            yield TextDelta(choice.get("index", 0), choice.get("text") or "")

    def chat(
        self, messages: Sequence[Mapping[str, Any]], fields: Mapping[str, Any]
    ) -> Iterator[TextDelta]:
        """As `Source.chat`."""
        for choice in self._choices("/chat/completions", {"messages": messages, **fields}):
            delta = choice.get("delta") or {}
            yield TextDelta(choice.get("index", 0), delta.get("content") or "")

    def _choices(self, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        content = json.dumps({"model": self.model, "stream": True, **body}).encode()
        with self._asked("POST", path, content) as answer:
            for text in event_data(answer):
                event = _read(text)
                if "error" in event:
                    raise ServerError(f"{self._url}: {_message(event)}")
                yield from event.get("choices") or []

    @contextmanager
    def _asked(
        self, method: str, path: str, content: bytes | None = None
    ) -> Iterator[HTTPResponse]:
        """An answer of status 200, whose connection is closed at the end: so is its request."""
        connection = self._kind(*self._address, timeout=PATIENCE_S)
        try:
            connection.request(method, self._path + path, content, self._headers)
            answer = connection.getresponse()
            if answer.status != 200:
                text = answer.read(1 << 16).decode("utf-8", "replace")
                raise ServerError(f"{self._url}: status {answer.status}: {_message(_read(text))}")
            yield answer
        except (OSError, HTTPException, UnicodeError) as error:
            reason = str(error) or type(error).__name__
            raise ServerError(f"{self._url} cannot be asked: {reason}") from error
        finally:
            connection.close()


def _read(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = text
    return found if isinstance(found, dict) else {"error": shown(found)}


def _message(body: Mapping[str, Any]) -> str:
    error = body.get("error", body.get("detail"))
    return str(error.get("message", error) if isinstance(error, Mapping) else error)
