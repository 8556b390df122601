"""A client of one server: it names the model, and knows what a request may be answered with."""

import json
import time
from typing import Any

from paged_conformance.properties import Broken, Lacking
from paged_conformance.server.answers import Answer, of_stream, of_whole
from paged_conformance.server.wire import Reply, Wire

PATHS = {"completions": "/completions", "chat": "/chat/completions"}
BUSY = (429, 503)  # what a server may say in a crowd


class Client:
    """One server and one model.

    Attributes:
        model: Its name.
        api: The endpoint that shows whether the server is well; None before one is known.
        sizes: Limits of what is drawn for it, by name.
        end: When an example has taken so long that it asks for nothing more.
    """

    def __init__(self, wire: Wire, model: str, sizes: dict[str, int]) -> None:
        self.wire, self.model, self.sizes = wire, model, sizes
        self.api: str | None = None
        self.end = float("inf")

    def post(self, path: str, body: Any, *, events: int | None = None, **headers: str) -> Reply:
        """Sends JSON, or bytes as they are.

        Raises:
            Lacking: The example has taken too long: the server is slow, and not hung.
            Unanswered: No answer came.
        """
        if time.monotonic() > self.end:
            raise Lacking("a faster server: all requests of an example take too long")
        raw = body if isinstance(body, bytes) else encoded(body)
        return self.wire.send("POST", path, raw, events=events, headers=headers)

    def body(self, request: dict[str, Any], **more: Any) -> dict[str, Any]:
        """A request's body with the model's name."""
        found: dict[str, Any] = {"model": self.model} | request["body"] | more
        return found

    def ask(self, request: dict[str, Any], *, stream: bool = False, must: bool = False) -> Answer:
        """Sends a request that is in order, and reads its answer.

        Args:
            request: `api`, a name of PATHS, and `body`.
            stream: As events.
            must: The server has answered such a request before.

        Raises:
            Lacking: The server refused it, as it may.
            Broken: It failed, or the answer cannot be read.
        """
        more: dict[str, Any] = {"stream": True} if stream else {}
        if stream and "usage" in request.get("ask", ()):
            more["stream_options"] = {"include_usage": True}
        body = self.body(request, **more)
        reply = self.post(PATHS[request["api"]], body)
        if reply.status != 200:
            says = f"{json.dumps(body)} got {reply.status}: {reply.short()}"
            if reply.status in BUSY or (400 <= reply.status < 500 and not must):
                raise Lacking(says)
            raise Broken(says)
        try:
            answer = of_stream(request["api"], reply) if stream else of_whole(request["api"], reply)
        except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
            seen = reply.events[:20] if stream else reply.short()
            what = f"{type(error).__name__}: {error}"
            raise Broken(
                f"the answer to {json.dumps(body)} cannot be read ({what}): {seen}"
            ) from error
        return answer

    def ill(self) -> str:
        """What is wrong with it, in words; empty if it is well and completes a token."""
        try:
            health = self.wire.send("GET", "//health")
            if health.status >= 500:
                return f"GET /health says {health.status} {health.short()}"
            if self.api is not None:
                probe = base(self.api, max_tokens=1)
                raw = encoded(self.body(probe))
                reply = self.wire.send("POST", PATHS[self.api], raw)
                if reply.status != 200:
                    return f"a request in order gets {reply.status} {reply.short()}"
        except Broken as error:
            return str(error)
        return ""

    def settle(self, seconds: float) -> str:
        """Waits until it is well, at most so long; returns what is wrong after that."""
        end = time.monotonic() + seconds
        while (ill := self.ill()) and time.monotonic() < end:
            time.sleep(0.1)
        return ill


def encoded(body: Any) -> bytes:
    """JSON in ASCII, so that a half of a surrogate pair can be sent as well."""
    return json.dumps(body).encode()


def base(api: str, **fields: Any) -> dict[str, Any]:
    """A request of two greedy tokens."""
    said: dict[str, Any] = {"prompt": "one two three"}
    if api == "chat":
        said = {"messages": [{"role": "user", "content": "one two three"}]}
    return {"api": api, "body": said | {"max_tokens": 2, "temperature": 0} | fields}
