"""Schedulers that are right and unlike each other: none of them may raise an alarm."""

from typing import Any

from paged_conformance.scheduler.plain import Held, Plain


class Watermark(Plain):
    """Leaves a block free when it admits, and frees blocks one step late."""

    def __init__(self, **sizes: Any) -> None:
        super().__init__(**sizes)
        self._late: list[int] = []

    def _watermark(self) -> int:
        return 1

    def schedule(self, *, drafts: list[dict[str, Any]]) -> dict[str, Any]:
        self.free += self._late
        self._late = []
        return super().schedule(drafts=drafts)

    def _release(self, one: Held) -> None:
        before = len(self.free)
        super()._release(one)
        self._late += self.free[before:]
        del self.free[before:]


class LastBlocksFirst(Plain):
    """Takes blocks from the other end, and forgets what it cached at once."""

    def _take(self) -> int:
        self.free.reverse()
        block = super()._take()
        self.free.reverse()
        return block

    def _release(self, one: Held) -> None:
        for block in one.table:
            if self.uses[block] == 1:
                self._forget(block)
        super()._release(one)


class OneChunkAtATime(Plain):
    """Computes two tokens of a prompt in a step, and in other orders of rows."""

    def _chunk(self, missing: int) -> int:
        chunk = super()._chunk(missing)
        return min(chunk, 2) if self.sizes["chunked"] else chunk

    def schedule(self, *, drafts: list[dict[str, Any]]) -> dict[str, Any]:
        plan = super().schedule(drafts=drafts)
        return {**plan, "rows": plan["rows"][::-1]}


class EmptySteps(Plain):
    """Every other step is empty."""

    capabilities = Plain.capabilities - {"repeats", "fcfs", "priorities"}
    turn = 0

    def schedule(self, *, drafts: list[dict[str, Any]]) -> dict[str, Any]:
        self.turn += 1
        if self.turn % 2:
            self.plan = []
            return {"rows": []}
        return super().schedule(drafts=drafts)


class NoCache(Plain):
    """Knows neither prefixes nor tables nor its own state."""

    capabilities = frozenset({"chunks", "fcfs", "aborts", "model_len"})


RIGHT = (Plain, Watermark, LastBlocksFirst, OneChunkAtATime, EmptySteps, NoCache)
