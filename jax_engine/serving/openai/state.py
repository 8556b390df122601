"""`GET /state`: what the engine does at this moment, for the page and for whoever watches.

All watchers share one question to the engine, and it is asked nothing while nobody watches.
"""

import asyncio
import re
import time
from typing import Any

from jax_engine.errors import EngineDeadError
from jax_engine.serving.openai.errors import engine_dead
from jax_engine.serving.openai.service import Service

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
        self._state, self._taken = _told(state), time.monotonic()

    def _about(self) -> dict[str, Any]:
        service = self._service
        return {
            "model": service.name,
            "chat": service.can_chat,
            "max_model_len": service.llm.max_model_len,
            "max_num_seqs": service.llm.config.max_num_seqs,
            "num_engines": len(service.llm.engines_alive),
        }


def _told(state: dict[str, Any]) -> dict[str, Any]:
    """The state, with ids of answers that may be told, and which prompt each request is."""
    for one in state["map"]["requests"]:
        own = _OWN_ID.fullmatch(one["request_id"] or "")
        one["request_id"], one["prompt"] = (own[1], int(own[2])) if own else (None, 0)
    return state
