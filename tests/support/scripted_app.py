"""The server's app over a scripted engine, as clients reach it without a port."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.testclient import TestClient

from jax_engine.serving.api.app import make_app
from jax_engine.serving.api.service import ServerSettings, Service
from jax_engine.tokenization.tokenizer import load_tokenizer
from tests.support.patience import HANG_S
from tests.support.scripted_llm import ScriptedLLM

Make = Callable[..., tuple[TestClient, ScriptedLLM]]


def scripted_app(checkpoint: Path) -> Make:
    """Makes apps whose models are called "tiny" and "other"."""

    def of(settings: dict[str, Any] | None = None, **script: Any) -> tuple[TestClient, ScriptedLLM]:
        llm = ScriptedLLM(load_tokenizer(checkpoint), **script)
        service = Service(llm, ServerSettings(names=("tiny", "other"), **(settings or {})))
        return TestClient(make_app(service), raise_server_exceptions=False), llm

    return of


def events(text: str) -> list[Any]:
    """Server-sent events without names, as OpenAI's: what each holds."""
    lines = [one.removeprefix("data: ") for one in text.split("\n\n") if one]
    assert lines.pop() == "[DONE]"
    return [json.loads(one) for one in lines]


def named_events(text: str) -> list[dict[str, Any]]:
    """Server-sent events, each with a line that names its type."""
    found = []
    for one in text.strip().split("\n\n"):
        name, data = one.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    return found


def asked_prompt(llm: ScriptedLLM) -> str:
    """The text of the last prompt."""
    prompt: str = llm.asked[-1][0]["prompt"]
    return prompt


@contextmanager
def served(app: Any, http: Any = "auto") -> Iterator[str]:
    """Serves an app at a free port; gives its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        # Without a configuration of logs: making one closes all handlers, and absl's its stream.
        config = uvicorn.Config(app, http=http, log_config=None, log_level="error", lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


async def leave(
    app: Any, path: str, body: dict[str, Any], llm: ScriptedLLM, count: int = 1
) -> None:
    """Sends a request of `count` prompts, and closes the connection when all of them run."""
    content = json.dumps(body).encode()
    received = iter([{"type": "http.request", "body": content, "more_body": False}])

    async def receive() -> Any:
        for message in received:
            return message
        while llm.open < count:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert llm.open == count
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        pass

    await asyncio.wait_for(app(http_scope(path), receive, send), HANG_S)


def http_scope(path: str) -> dict[str, Any]:
    """What ASGI says of a POST with JSON."""
    return {
        "type": "http", "method": "POST", "path": path, "query_string": b"", "root_path": "",
        "headers": [(b"content-type", b"application/json")], "http_version": "1.1",
    }  # fmt: skip
