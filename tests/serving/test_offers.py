"""Offers of other protocols and announced bodies, over raw sockets at every cut of the bytes."""

import itertools
import json
import re
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from jax_engine.serving.api import http_protocol
from jax_engine.serving.api.http_protocol import BoundedHead
from tests.support.scripted_app import scripted_app, served

TEXTS = ("one", "twenty-two", "é" * 70)
JDK = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"
OFFERS = {
    "JDK": JDK,
    "websocket": "Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n",
    "TLS": "Upgrade: TLS/1.0, HTTP/2.0\r\nCONNECTION: UPGRADE\r\n",
    "twice": "upgrade: h2c\r\nUpgrade: websocket\r\nConnection: close\r\nConnection: upgrade\r\n",
    "not named": "Upgrade: h2c\r\n",
    "named only": "Connection: upgrade\r\n",
}


@pytest.fixture(scope="module")
def url(checkpoint: Path) -> Iterator[str]:
    client, _ = scripted_app(checkpoint)({"max_body_bytes": 500})
    with served(client.app, BoundedHead) as found:
        yield found


def request(text: str, headers: str = "", *, chunked: bool = False, version: str = "1.1") -> bytes:
    """A request whose answer says its text."""
    body = json.dumps({"prompt": text, "echo": True, "max_tokens": 0}).encode()
    framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body)}"
    head = f"POST /v1/completions HTTP/{version}\r\nHost: x\r\n{headers}{framing}\r\n"
    head += "Content-Type: application/json\r\n\r\n"
    if not chunked:
        return head.encode() + body
    pieces = [body[at : at + 9] for at in range(0, len(body), 9)]
    body = b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in pieces)
    return head.encode() + body + b"0\r\nX-Request-Id: trailer\r\nContent-Type: text/plain\r\n\r\n"


class Peer:
    """A connection that reads whole answers."""

    def __init__(self, url: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read = b""

    def close(self) -> None:
        self.socket.close()

    def send(self, *pieces: bytes) -> None:
        for one in pieces:
            self.socket.sendall(one)

    def answer(self) -> tuple[int, str, bytes]:
        """Status, head and body of the next answer."""
        while b"\r\n\r\n" not in self._read:
            self._more()
        head, _, self._read = self._read.partition(b"\r\n\r\n")
        found = re.search(rb"(?i)content-length: (\d+)", head)
        length = int(found[1]) if found else 0
        while len(self._read) < length:
            self._more()
        body, self._read = self._read[:length], self._read[length:]
        return int(head.split()[1]), head.decode().lower(), body

    def ended(self) -> bool:
        """Whether the server closes the connection, with nothing more to say."""
        return not self._read and not self.socket.recv(1)

    def _more(self) -> None:
        data = self.socket.recv(1 << 16)
        assert data, self._read
        self._read += data

    def text(self) -> str:
        status, _, body = self.answer()
        assert status == 200, body
        answer = json.loads(body)
        assert answer["id"] != "cmpl-trailer"
        said: str = answer["choices"][0]["text"]
        return said


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("offer", OFFERS)
def test_an_offer_is_ignored_at_every_cut(url: str, offer: str, chunked: bool) -> None:
    """The same connection serves one request after another, each cut at another byte."""
    data = request(TEXTS[0], OFFERS[offer], chunked=chunked)
    closes = offer == "twice"  # it says close, too
    peer = Peer(url)
    for cut in range(0, len(data), 7 if closes else 1):
        peer.send(data[:cut], data[cut:])
        assert peer.text() == TEXTS[0]
        if closes:
            assert peer.ended()
            peer.close()
            peer = Peer(url)
    peer.close()


def test_the_body_may_come_late_and_byte_by_byte(url: str) -> None:
    for chunked in (False, True):
        with closing(Peer(url)) as peer:
            data = request(TEXTS[1], JDK, chunked=chunked)
            peer.send(*[data[at : at + 1] for at in range(len(data))])
            assert peer.text() == TEXTS[1]


@pytest.mark.parametrize("kinds", [*itertools.product([False, True], repeat=3)])
def test_requests_with_and_without_offers_follow_each_other(
    url: str, kinds: tuple[bool, bool, bool]
) -> None:
    """Kept alive and pipelined, cut anywhere; the body of the first one is chunked."""
    parts = [
        request(text, JDK if offers else "", chunked=i == 0)
        for i, (text, offers) in enumerate(zip(TEXTS, kinds, strict=True))
    ]
    data = b"".join(parts)
    with closing(Peer(url)) as peer:
        for cut in range(0, len(data), 11):
            peer.send(data[:cut], data[cut:])
            assert [peer.text() for _ in TEXTS] == list(TEXTS)


def test_offers_without_a_body(url: str) -> None:
    get = f"GET /health HTTP/1.1\r\nHost: x\r\n{JDK}\r\n".encode()
    with closing(Peer(url)) as peer:
        peer.send(get + get)
        assert [peer.answer()[0] for _ in range(2)] == [200, 200]
        peer.send(request(TEXTS[1], JDK))
        assert peer.text() == TEXTS[1]


def test_an_offer_to_http_1_0(url: str) -> None:
    with closing(Peer(url)) as peer:
        peer.send(request(TEXTS[0], JDK, version="1.0"))
        assert peer.text() == TEXTS[0] and peer.ended()


@pytest.mark.parametrize(
    "data",
    [
        b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        request("x", JDK + "Content-Length: 5\r\n"),
        request("x", JDK + "Transfer-Encoding: chunked\r\n"),
        request("x", JDK + "Transfer-Encoding: gzip\r\n"),
        request("x", JDK + "X: " + "a" * http_protocol.MAX_HEAD + "\r\n"),
    ],
)
def test_what_is_no_request_is_refused_once(url: str, data: bytes) -> None:
    with closing(Peer(url)) as peer:
        peer.send(data)
        status, head, body = peer.answer()
        assert status == 400 and "connection: close" in head and b'{"error"' in body


def test_no_refusal_amid_the_answer_to_another_request(checkpoint: Path) -> None:
    client, llm = scripted_app(checkpoint)(hangs=True)
    body = b'{"prompt": "x", "stream": true}'
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    asks = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with served(client.app, BoundedHead) as url, closing(Peer(url)) as peer:
        peer.send(asks)
        found = b""
        while b"data: " not in found:
            found += peer.socket.recv(1 << 16)
        peer.send(b"\0\0\r\n\r\n")
        while more := peer.socket.recv(1 << 16):
            found += more
    assert b"400 Bad Request" not in found and llm.open == 0


ASK = "Expect: 100-Continue\r\n"


@pytest.mark.parametrize("headers", [ASK, JDK + ASK])
def test_an_announced_body_is_asked_for(url: str, headers: str) -> None:
    data = request(TEXTS[1], headers)
    cut = data.index(b"\r\n\r\n") + 4
    with closing(Peer(url)) as peer:
        for _ in range(2):  # the connection lives on
            peer.send(data[:cut])
            assert peer.answer()[0] == 100
            peer.send(data[cut:])
            assert peer.text() == TEXTS[1]


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        (b"/v1/completions", b"/nothing", 404),
        (b"POST", b"PUT", 405),
        (b"Host: x", b"Content-Encoding: gzip", 415),
    ],
)
def test_behind_an_announced_body_that_nobody_reads_the_connection_ends(
    url: str, old: bytes, new: bytes, status: int
) -> None:
    """Otherwise the next request would be taken for the body."""
    data = request("x", ASK).replace(old, new)
    with closing(Peer(url)) as peer:
        peer.send(data[: data.index(b"\r\n\r\n") + 4])
        found, head, _ = peer.answer()
        assert found == status and "connection: close" in head and peer.ended()


def test_too_long_an_announced_body_is_refused_before_it_comes(url: str) -> None:
    with closing(Peer(url)) as peer:
        peer.send(request("x" * 600, ASK).partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
        status, head, _ = peer.answer()
        assert status == 413 and "connection: close" in head and peer.ended()


def test_http_1_0_is_not_told_to_go_on(url: str) -> None:
    with closing(Peer(url)) as peer:
        peer.send(request(TEXTS[0], ASK, version="1.0"))
        assert peer.text() == TEXTS[0]


def test_coded_transfers_are_refused(url: str) -> None:
    data = request("x", chunked=True).replace(b": chunked", b": gzip, chunked")
    with closing(Peer(url)) as peer:
        peer.send(data)
        status, _, body = peer.answer()
        assert status == 501 and b"Transfer-Encoding must be chunked" in body


def test_the_rest_of_a_refused_body_has_a_time(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_S", 0.5)
    data = request("x" * 600)
    with closing(Peer(url)) as peer:
        peer.send(data[:-2])
        assert peer.answer()[0] == 413
        peer.send(data[-2:-1])  # ends the time of an idle connection
        assert peer.ended()
    with closing(Peer(url)) as peer:  # one that comes in time leaves the connection as it was
        peer.send(data[:-2])
        assert peer.answer()[0] == 413
        peer.send(data[-2:] + request(TEXTS[1]))
        assert peer.text() == TEXTS[1]
