"""A client that may leave, read slowly, or send half of what it announced."""

import asyncio
import socket
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import httptools

SMALL_BUFFER = 2048  # bytes that wait in the kernel for a slow reader
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Manner:
    """How a client behaves.

    Attributes:
        leave_after_s, leave_after_bytes: when it closes its connection; None: never.
        pause_s: between two readings of few bytes; 0: it reads what there is.
        sends: the share of its request that it sends before it leaves.
    """

    leave_after_s: float | None = None
    leave_after_bytes: int | None = None
    pause_s: float = 0.0
    sends: float = 1.0


POLITE = Manner()


class Answer:
    """What has come of an answer.

    Attributes:
        status: HTTP status of the answer; None: nothing has come.
        whole: whether it came to its end.
        problem: why it did not, unless its client left.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        self.body = b""
        self.whole = False
        self.problem: str | None = None
        self.parser = httptools.HttpResponseParser(self)

    # The names are those that the parser calls.
    def on_headers_complete(self) -> None:
        self.status = self.parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.whole = True


async def exchange(url: str, message: bytes, manner: Manner = POLITE) -> Answer:
    """Sends a request as it is, and reads the answer in its manner."""
    answer = Answer()
    try:
        async with asyncio.timeout(PATIENCE_S):
            await _exchange(url, message, manner, answer)
    except TimeoutError:
        answer.problem = f"no end within {PATIENCE_S:.0f} s"
    except (OSError, httptools.HttpParserError) as error:
        answer.problem = repr(error)
    return answer


async def _exchange(url: str, message: bytes, manner: Manner, answer: Answer) -> None:
    connection = socket.socket()
    connection.setblocking(False)
    if manner.pause_s:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
    place = urlsplit(url)
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_connect(connection, (place.hostname, place.port))
        with suppress(ConnectionError):  # an answer may come before the whole request has gone
            await loop.sock_sendall(connection, message[: int(len(message) * manner.sends)])
        if manner.sends < 1:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(manner.leave_after_s):
                await _read(connection, manner, answer)
    finally:
        connection.close()


async def _read(connection: socket.socket, manner: Manner, answer: Answer) -> None:
    loop = asyncio.get_running_loop()
    while not answer.whole:
        data = await loop.sock_recv(connection, SMALL_BUFFER if manner.pause_s else 1 << 16)
        if not data:
            answer.problem = "the connection was closed"
            return
        answer.parser.feed_data(data)
        await asyncio.sleep(manner.pause_s)
        if manner.leave_after_bytes is not None and len(answer.body) > manner.leave_after_bytes:
            return
