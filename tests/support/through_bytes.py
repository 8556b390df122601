"""A worker behind a wall that only bytes pass: what another process would be, without one."""

import pickle
from typing import Any

from jax_engine import LLMEngine


class ThroughBytes:
    """The methods of a worker that its steps go through; all else is the worker's own."""

    def __init__(self, worker: Any) -> None:
        self.worker = worker
        self.num_bytes = 0
        self._tickets: dict[int, Any] = {}
        self._num_steps = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.worker, name)

    def __setattr__(self, name: str, value: Any) -> None:
        own = name in ("worker", "num_bytes", "_tickets", "_num_steps")
        object.__setattr__(self if own else self.worker, name, value)

    def launch(self, step: Any) -> int:
        ticket = self.worker.launch(self._copy(step))
        self._num_steps += 1
        self._tickets[self._num_steps] = ticket
        return self._num_steps

    def logits(self, ticket: int) -> Any:
        return self._copy(self.worker.logits(self._tickets[ticket]))

    def sample(self, ticket: int, allowed: Any, processed: Any) -> None:
        self.worker.sample(self._tickets[ticket], self._copy(allowed), self._copy(processed))

    def collect(self, ticket: int) -> Any:
        return self._copy(self.worker.collect(self._tickets.pop(ticket)))

    def _copy(self, value: Any) -> Any:
        sent = pickle.dumps(value)
        self.num_bytes += len(sent)
        return pickle.loads(sent)


def send_steps_through_bytes(engine: LLMEngine) -> ThroughBytes:
    """From now on; no step may be on its way."""
    worker: Any = ThroughBytes(engine.worker)
    engine.worker = engine._pipeline._worker = worker
    return worker
