"""Right engines with other habits than the toy's: none of them may be called wrong."""

from typing import Any

from paged_conformance.engine.toy import EOS, Sequence, Toy


class LastComesFirst(Toy):
    """The latest request is served first, and the earliest is preempted."""

    def schedule(self) -> list[tuple[Sequence, int]]:
        for seq in self.waiting:
            seq.order = -abs(seq.order)
        return super().schedule()


class OneAtATime(Toy):
    """One sequence runs; all others wait, whatever it was made for."""

    def schedule(self) -> list[tuple[Sequence, int]]:
        self.seqs = 1
        return super().schedule()


class TellsLater(Toy):
    """Outputs come two steps late, as from a thread, and aborted requests say nothing more."""

    def __init__(self, **sizes: Any) -> None:
        super().__init__(**sizes)
        self.late: list[Any] = []
        self.steps = 0

    def step(self) -> list[Any]:
        self.steps += 1
        if super().is_busy():
            self.late += super().step()
        if self.steps % 3:
            return []
        told, self.late = self.late, []
        return told

    def abort(self, *, ids: list[str]) -> list[Any]:
        super().abort(ids=ids)
        self.late = [one for one in self.late if one["id"] not in ids]
        return []

    def is_busy(self) -> bool:
        return super().is_busy() or bool(self.late)


class KeepsNothing(Toy):
    """Cached blocks are forgotten as soon as nobody has them, the last freed first used again."""

    def release(self, seq: Sequence) -> None:
        super().release(seq)
        for block in self.free:
            self.forget(block)
        self.free.reverse()


class EndsOnly(Toy):
    """Every request is told at its end, whatever kind it asked for."""

    def step(self) -> list[Any]:
        return [one for one in super().step() if one["finish_reason"] is not None]

    def tell(self, seq: Sequence) -> dict[str, Any]:
        seq.num_told = seq.text_told = 0
        return super().tell(seq)


class ForgetsAtRest(Toy):
    """The end of a session empties pool and cache."""

    def rest(self) -> None:
        self.start()


class CopiesOfOneSample(Toy):
    """Samples are made one after the other."""

    def schedule(self) -> list[tuple[Sequence, int]]:
        first = {seq.name for seq in self.running}
        self.waiting.sort(key=lambda seq: (seq.name in first, seq.key))
        return super().schedule()


class ForbidsAnIgnoredEnd(Toy):
    """Before min_tokens the token that ends outputs does not come, though it is ignored."""

    def logits(self, seq: Sequence, state: int, batch: list[Sequence]) -> list[float]:
        row = super().logits(seq, state, batch)
        if len(seq.output) < seq.params.get("min_tokens", 0):
            row[EOS] = -1e9
        return row


RIGHT = (
    LastComesFirst, OneAtATime, TellsLater, KeepsNothing, EndsOnly, ForgetsAtRest,
    CopiesOfOneSample, ForbidsAnIgnoredEnd,
)  # fmt: skip
