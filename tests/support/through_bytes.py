"""A runner behind a wall that only bytes pass: what another process would be, without one."""

import pickle
from typing import Any


class ThroughBytes:
    """A runner, of which tests may see and set all else that it has.

    A ticket is a number. Of a step that may no more be collected nothing is kept.
    """

    def __init__(self, runner: Any) -> None:
        self.runner = runner
        self.num_bytes = 0
        self._tickets: dict[int, Any] = {}
        self._num_steps = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.runner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        own = name in ("runner", "num_bytes", "_tickets", "_num_steps")
        object.__setattr__(self if own else self.runner, name, value)

    @property
    def capabilities(self) -> Any:
        return self._copy(self.runner.capabilities)

    def launch(self, step: Any) -> int:
        ticket = self.runner.launch(self._copy(step))
        self._num_steps += 1
        # Beside each of several steps in flight there may be one that only moves blocks
        most = 2 * self.runner.capabilities.max_concurrent_batches
        self._tickets.pop(self._num_steps - most, None)
        self._tickets[self._num_steps] = ticket
        return self._num_steps

    def logits(self, ticket: int) -> Any:
        return self._copy(self.runner.logits(self._tickets[ticket]))

    def sample(self, ticket: int, allowed: Any, processed: Any) -> None:
        self.runner.sample(self._tickets[ticket], self._copy(allowed), self._copy(processed))

    def collect(self, ticket: int) -> Any:
        return self._copy(self.runner.collect(self._tickets.pop(ticket)))

    def host_room(self, blocks: list[int]) -> Any:
        return self._copy(self.runner.host_room(self._copy(blocks)))

    def measure_costs(self) -> Any:
        return self._copy(self.runner.measure_costs())

    def _copy(self, value: Any) -> Any:
        sent = pickle.dumps(value)
        self.num_bytes += len(sent)
        return pickle.loads(sent)
