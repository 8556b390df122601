"""HTTP/1.1 as uvicorn speaks it, with limits to a head's size and time, and with no other protocol.

A client may offer another protocol (`Upgrade: h2c` by every JDK, `websocket`, `TLS/1.0`). A server
may ignore the offer, and this one does. But the parser takes the offer for the end of HTTP, and the
body for bytes of the other protocol. So `BoundedHead` reads such a head a second time, without the
offer.
"""

import asyncio

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from jax_engine.serving.api.api_errors import ApiError

MAX_HEAD = 64 << 10  # bytes of a request's line and headers
HEAD_S = 30.0  # so long the head of a request may take, or what is left of a refused body


class BoundedHead(HttpToolsProtocol):
    """A connection that is closed when a head is too long or too slow, and that stays HTTP/1.1.

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
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except httptools.HttpParserError:
            too_long = self._read > MAX_HEAD
            self.send_400_response(_TOO_LONG if too_long else "this is no valid HTTP/1.1 request")
        if self._in_head and self._come > MAX_HEAD and not self.transport.is_closing():
            self.send_400_response(_TOO_LONG)

    def _parse(self, data: bytes) -> None:
        """Feeds the parser; a head with an offer is read again without it.

        Raises:
            HttpParserError: This is no request.
        """
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = self._head_without_offer() + data[upgrade.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            else:
                return

    def _head_without_offer(self) -> bytes:
        method, version = self.parser.get_method(), self.parser.get_http_version()
        if method == b"CONNECT":  # asks for another protocol itself
            raise httptools.HttpParserError("CONNECT")
        lines = [method + b" " + self.url + b" HTTP/" + version.encode()]
        lines += [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._read = 0
        if not self._in_head:
            self._begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Takes a header. Those behind the body (trailers) are dropped: the answer is under way."""
        self._read += len(name) + len(value)
        if self._read > MAX_HEAD:
            raise httptools.HttpParserError(_TOO_LONG)
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head has ended, unless it will be read again."""
        if self.parser.should_upgrade():
            return
        self._end()
        if self.parser.get_http_version() == "1.0":  # knows no status 100
            self.expect_100_continue = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The body has ended, unless the head will be read again."""
        if not self.parser.should_upgrade():
            self._end()
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer has ended. If it came before the body's end, the rest has a time, too."""
        super().on_response_complete()
        if self.cycle.response_complete and self.cycle.more_body:
            self._start_timer()

    def send_400_response(self, msg: str) -> None:
        """Closes the connection, and says why unless it owes the answer to another request."""
        if self._owes_answer():
            self.transport.close()
            return
        content = msgspec.json.encode(ApiError(400, msg).body())
        head = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
        head += f"content-length: {len(content)}\r\nconnection: close\r\n\r\n"
        self.transport.write(head.encode() + content)
        self.transport.close()

    def _owes_answer(self) -> bool:
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return False
        return bool(self.pipeline) or cycle.response_started or not cycle.more_body

    def _begin(self) -> None:
        self._come, self._in_head = 0, True
        self._start_timer()

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(HEAD_S, self.transport.close)

    def _end(self) -> None:
        self._in_head = False
        if self._timer is not None:
            self._timer.cancel()


_TOO_LONG = f"the request's line and headers must have at most {MAX_HEAD} bytes"
