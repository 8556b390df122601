"""HTTP as a client sees it: whole answers, streams event by event, and connections that break off.

The standard library's client is used, since a test needs what other clients hide: half a body, a
reset, the moment at which each event came.
"""

import http.client
import json
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from paged_conformance.properties import Broken

DONE = "[DONE]"


class Unanswered(Broken):
    """The server sent nothing for the client's patience, or the connection broke off."""


class Late(Unanswered):
    """The connection holds, but nothing came for the client's patience, or no end of it."""


@dataclass
class Reply:
    """What came back.

    Attributes:
        headers: Names in lower case.
        events: The data of a stream's events, as text; empty if it was no stream.
        stray: Lines of a stream that are neither data, nor a comment, nor another field.
    """

    status: int
    headers: dict[str, str]
    body: bytes = b""
    events: list[str] = field(default_factory=list)
    stray: list[str] = field(default_factory=list)

    def json(self) -> Any:
        """The body; None if it is no JSON. NaN and Infinity are none."""
        try:
            return json.loads(self.body, parse_constant=_no_constant)
        except ValueError:
            return None

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")

    def short(self) -> str:
        return self.body[:300].decode(errors="replace")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


class _Endless(TimeoutError):
    """A stream goes on for longer than any answer may."""


class Wire:
    """Connections to one server, each used once.

    Attributes:
        url: The base URL, such as http://127.0.0.1:8000/v1.
        patience: Seconds to wait for the next byte, and twice that for a whole answer.
    """

    def __init__(self, url: str, key: str | None, patience: float) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url is {url!r}; it must be one such as http://127.0.0.1:8000/v1")
        self.url, self.patience = url, patience
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._path = parts.path.rstrip("/")
        self._headers = {"Content-Type": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"

    def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        headers: dict[str, str] | None = None,
        events: int | None = None,
    ) -> Reply:
        """Sends a request and reads the answer.

        Args:
            path: Under the base URL; from the server's root if it begins with two slashes.
            events: After so many events the client hangs up.

        Raises:
            Unanswered: Nothing came in time, or too little.
        """
        connection, end = self._open(), time.monotonic() + 2 * self.patience
        held = None
        try:
            sent = self._headers | (headers or {})
            connection.request(method, self.place(path), body, sent)
            held = connection.sock  # the answer may take it from the connection
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            reply = Reply(response.status, found)
            if reply.is_stream:
                for line in self._lines(response, end):
                    _read_line(reply, line)
                    if events is not None and len(reply.events) >= events:
                        break
            else:
                reply.body = response.read()
            return reply
        except (OSError, http.client.HTTPException) as error:
            raise self.unanswered(method, path, body, error) from error
        finally:
            hang_up(held)
            connection.close()

    def leave(self, path: str, body: bytes, after: float, *, half: bool, reset: bool) -> None:
        """Sends a request, or half of it, and hangs up after some seconds without reading."""
        connection = self._open()
        try:
            connection.putrequest("POST", self.place(path))
            for name, value in self._headers.items():
                connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders()
            connection.send(body[: len(body) // 2] if half else body)
            time.sleep(after)
            if reset and connection.sock is not None:
                linger = struct.pack("ii", 1, 0)
                connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        except OSError as error:
            raise self.unanswered("POST", path, body, error) from error
        finally:
            hang_up(connection.sock)
            connection.close()

    def place(self, path: str) -> str:
        return path[1:] if path.startswith("//") else self._path + path

    def unanswered(self, method: str, path: str, body: bytes | None, error: object) -> Unanswered:
        """What to raise where a request got no answer."""
        sent = "" if body is None else f" {body[:600].decode(errors='replace')}"
        asked = f"{method} {self.place(path)}{sent}"
        if isinstance(error, _Endless):
            return Late(f"{asked}: the answer had not ended after {2 * self.patience:g} s")
        if isinstance(error, TimeoutError):
            return Late(f"{asked} was not answered: nothing came within {self.patience:g} s")
        return Unanswered(f"{asked} was not answered: {type(error).__name__}: {error}")

    def _open(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        return kind(self._host, self._port, timeout=self.patience)

    def _lines(self, response: http.client.HTTPResponse, end: float) -> Iterator[str]:
        while line := response.readline():
            yield line.decode("utf-8", errors="replace").rstrip("\r\n")
            if time.monotonic() > end:
                raise _Endless


def hang_up(held: socket.socket | None) -> None:
    """Ends a connection at once, though an answer may still be on its way."""
    if held is not None:
        with suppress(OSError):
            held.shutdown(socket.SHUT_RDWR)


def _read_line(reply: Reply, line: str) -> None:
    if line.startswith("data:"):
        reply.events.append(line[5:].removeprefix(" "))
    elif line and not line.startswith((":", "event:", "id:", "retry:")):
        reply.stray.append(line)
