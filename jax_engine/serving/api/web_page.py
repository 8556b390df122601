"""`GET /`, the page that shows the engine at work and chats with it, and `GET /state` behind it.

The page's files are served as they lie in `jax_engine/serving/page`. They load nothing from
elsewhere, and the browser is told to refuse what would.

The state says what the engine does at this moment, for the page and for any other watcher. All
watchers share one question to the engine. It is asked nothing while nobody watches.
"""

import asyncio
import re
import time
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.responses import Response

from jax_engine.checks import shown
from jax_engine.errors import EngineDeadError
from jax_engine.serving.api.api_errors import engine_dead, invalid
from jax_engine.serving.api.endpoint_responses import json_response
from jax_engine.serving.api.service import Service

FOLDER = Path(__file__).parents[1] / "page"
# Path: file and type. They need no key; the page asks for it.
FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page/chat.js": ("chat.js", "text/javascript; charset=utf-8"),
    "/page/map.js": ("map.js", "text/javascript; charset=utf-8"),
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # the next version's files belong together
}


def add_page(app: FastAPI, service: Service) -> None:
    """Adds the page, and the state that it shows."""
    watches = [StateWatch(service, number) for number in range(len(service.llm.engines_alive))]

    @app.get("/state")
    async def state(engine: str = "0") -> Response:
        """What the engine of this number does at this moment."""
        if engine not in map(str, range(len(watches))):
            most = len(watches) - 1
            raise invalid("engine", f"engine must be from 0 to {most}, got {shown(engine)}")
        return json_response(await watches[int(engine)].now(), {"Cache-Control": "no-store"})

    for path, (name, kind) in FILES.items():
        _add_file(app, path, (FOLDER / name).read_bytes(), kind)


def _add_file(app: FastAPI, path: str, content: bytes, kind: str) -> None:
    @app.get(path, include_in_schema=False)
    async def file() -> Response:
        return Response(content, headers=HEADERS, media_type=kind)


FRESH_S = 0.15  # so long an answer serves all who ask
WAIT_S = 1.0  # a long step delays the engine's answer, but not that of the server for longer
# Only ids that the server made are told: a client's own may say more than others should know.
_OWN_ID = re.compile(r"([a-z]+-[0-9a-f]{32})/(\d+)#\d+")


class StateWatch:
    """Asks one of the engines, and remembers what it said last."""

    def __init__(self, service: Service, engine: int = 0) -> None:
        self._service = service
        self._engine = engine
        self._state: dict[str, Any] | None = None
        self._taken = float("-inf")
        self._question: asyncio.Task[dict[str, Any]] | None = None

    async def now(self) -> dict[str, Any]:
        """The state, with its age; an older one while the engine is in a long step.

        Raises:
            ApiError: the engine has ended.
        """
        llm = self._service.llm
        if llm.errored:
            raise engine_dead()
        if time.monotonic() - self._taken > FRESH_S:
            await self._ask()
        return {
            "age": max(0.0, time.monotonic() - self._taken) if self._state else None,
            "step_seconds": llm.step_seconds,
            "server": self._about(),
            "engine": self._state,
        }

    async def _ask(self) -> None:
        """Waits for the answer, or leaves the question open: the next who asks waits for it too."""
        loop = asyncio.get_running_loop()
        question = self._question
        if question is None or question.done() or question.get_loop() is not loop:
            question = self._question = loop.create_task(self._service.llm.get_state(self._engine))
        await asyncio.wait([question], timeout=WAIT_S)
        if not question.done() or question is not self._question:
            return
        self._question = None
        try:
            state = question.result()
        except EngineDeadError:
            raise engine_dead() from None
        self._state, self._taken = _public_state(state), time.monotonic()

    def _about(self) -> dict[str, Any]:
        service = self._service
        return {
            "model": service.name,
            "chat": service.can_chat,
            "max_model_len": service.llm.max_model_len,
            "max_num_seqs": service.llm.config.max_num_seqs,
            "num_engines": len(service.llm.engines_alive),
        }


def _public_state(state: dict[str, Any]) -> dict[str, Any]:
    """The state, with ids of answers that may be told, and which prompt each request is."""
    for one in state["map"]["requests"]:
        own = _OWN_ID.fullmatch(one["request_id"] or "")
        one["request_id"], one["prompt"] = (own[1], int(own[2])) if own else (None, 0)
    return state
