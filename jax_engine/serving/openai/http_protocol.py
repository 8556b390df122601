"""HTTP as uvicorn speaks it, with limits to the head of a request: its size, and its time."""

import asyncio

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from jax_engine.serving.openai.errors import ApiError

MAX_HEAD = 64 << 10  # bytes of a request's line and headers
HEAD_S = 30.0  # so long the head of a request may take


class BoundedHead(HttpToolsProtocol):
    """A connection that is closed when a head is too long or too slow.

    What has come counts, and what of it was read: a head may end in the piece in which it began.
    """

    _come = _read = 0
    _in_head = False
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """A client has gone."""
        self._end()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Takes a piece of a request, or of several."""
        self._come += len(data) if self._in_head else 0
        super().data_received(data)
        if self._in_head and self._come > MAX_HEAD and not self.transport.is_closing():
            self.send_400_response(_TOO_LONG)

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._read = 0
        if not self._in_head:
            self._begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Takes a header."""
        super().on_header(name, value)
        self._read += len(name) + len(value)
        if self._read > MAX_HEAD:
            raise httptools.HttpParserError(_TOO_LONG)

    def on_headers_complete(self) -> None:
        """The head has ended."""
        self._end()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Answers what is no request, in the form of all errors, and closes the connection."""
        content = msgspec.json.encode(ApiError(400, msg).body())
        head = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
        head += f"content-length: {len(content)}\r\nconnection: close\r\n\r\n"
        self.transport.write(head.encode() + content)
        self.transport.close()

    def _begin(self) -> None:
        self._come, self._in_head = 0, True
        self._timer = self.loop.call_later(HEAD_S, self.transport.close)

    def _end(self) -> None:
        self._in_head = False
        if self._timer is not None:
            self._timer.cancel()


_TOO_LONG = f"the request's line and headers must have at most {MAX_HEAD} bytes"
