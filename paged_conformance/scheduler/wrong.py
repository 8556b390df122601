"""Schedulers that are wrong, each in one way, and the property that catches it."""

from typing import Any

from paged_conformance.scheduler.plain import Held, Plain


class ChunksBeyondTheEnd(Plain):
    """The chunk is worked out before the hit of the prefix cache is known."""

    def schedule(self, *, drafts: list[dict[str, Any]]) -> dict[str, Any]:
        plan = super().schedule(drafts=drafts)
        for row, (one, _, _) in zip(plan["rows"], self.plan, strict=True):
            if row["start"] and row["start"] == one.computed and not one.output:
                row["tokens"] += row["start"]
        return plan


class SkipsAToken(Plain):
    """After a preemption the last token counts as computed."""

    def _preempt(self, victim: Held) -> None:
        super()._preempt(victim)
        victim.tokens.insert(0, victim.tokens[0])


class DrawsTooEarly(Plain):
    """A chunk that ends at a block's end is taken for the whole prompt."""

    def schedule(self, *, drafts: list[dict[str, Any]]) -> dict[str, Any]:
        plan = super().schedule(drafts=drafts)
        for row in plan["rows"]:
            if not row["drafts"]:
                row["draws"] = 1
        return plan


class ForgetsTheBudget(Plain):
    """Decodes do not count."""

    def _budget(self) -> int:
        used = sum(num_tokens for _, num_tokens, _ in self.plan if num_tokens > 1)
        return int(self.sizes["max_num_batched_tokens"]) - used


class OneSequenceTooMany(Plain):
    """One more than max_num_seqs run."""

    def __init__(self, **sizes: Any) -> None:
        super().__init__(**{**sizes, "max_num_seqs": sizes["max_num_seqs"] + 1})


class VictimStaysInTheStep(Plain):
    """The victim may be one that is scheduled already, and its row stays."""

    def _victim(self) -> Held:
        return self.running[0]


class ShortTables(Plain):
    """A sequence that ends at a block's end gets no block for its next token."""

    def _blocks(self, num_tokens: int) -> int:
        size = int(self.sizes["block_size"])
        return max(1, -(-(num_tokens - 1) // size))


class FreesTooEarly(Plain):
    """When a request is aborted, all blocks of the youngest one are freed as well."""

    def abort(self, *, id: str) -> None:
        if id == "nobody" and self.running:
            self.free[:0] = self.running[-1].table
        super().abort(id=id)


class CachesBeforeItComputes(Plain):
    """Blocks are found by their tokens from their allocation on."""

    def _grow(self, one: Held, end: int) -> bool:
        grown = super()._grow(one, end)
        if grown and not one.output:
            computed, one.computed = one.computed, min(len(one.tokens), self._room(one))
            self._remember(one)
            one.computed = computed
        return grown

    def _room(self, one: Held) -> int:
        return len(one.table) * int(self.sizes["block_size"])


class HitsOfFreedBlocks(Plain):
    """What a block held is found after somebody else wrote into it."""

    def _forget(self, block: int) -> None:
        pass

    def _release(self, one: Held) -> None:
        super()._release(one)
        self.free.sort()  # so that they are taken again soon


class WholePromptFromTheCache(Plain):
    """A prompt of whole blocks may be a hit from its first token to its last."""

    def _most_hit(self, one: Held) -> int:
        return len(one.tokens)

    def _chunk(self, missing: int) -> int:
        return max(1, super()._chunk(missing))


class SaltsDoNotMatter(Plain):
    """All salts share one cache."""

    def _key(self, one: Held, end: int) -> Any:
        return tuple(one.tokens[:end])


class CachesDrafts(Plain):
    """Blocks are remembered with the drafts in them, whether these were right or not."""

    def update(self, *, tokens: list[dict[str, Any]]) -> list[dict[str, Any]]:
        size = self.sizes["block_size"]
        for one, num_tokens, guessed in self.plan:
            said = [*one.tokens, *guessed]
            for end in range(size, one.computed + num_tokens + 1, size):
                key = one.asked["salt"], one.asked["adapter"], tuple(said[:end])
                if guessed and one.table:
                    self.cached.setdefault(key, one.table[end // size - 1])
            one.computed += len(guessed)  # and they count
        return super().update(tokens=tokens)


class WaitsForEver(Plain):
    """A prompt that needs more than half of the pool is never admitted."""

    def _admit(self) -> None:
        head = self.waiting[0] if self.waiting else None
        half = self.sizes["num_blocks"] // 2
        if head is None or self._blocks(len(head.tokens)) <= half:
            super()._admit()


class OneTokenTooMany(Plain):
    """max_tokens is checked before the token is counted."""

    def _reason(self, one: Held) -> str | None:
        reason = super()._reason(one)
        if reason == "length" and not self._full(one):
            return reason if len(one.output) > one.asked["max_tokens"] else None
        return reason


class IgnoresStopTokens(Plain):
    """Stop tokens of a request are only looked for in its first output token."""

    def _reason(self, one: Held) -> str | None:
        if len(one.output) > 1 and one.tokens[-1] in one.asked["stop_token_ids"]:
            return None
        return super()._reason(one)


class ShortestFirst(Plain):
    """Short prompts overtake long ones."""

    def _admit(self) -> None:
        self.waiting.sort(key=lambda one: (len(one.tokens), one.number))
        super()._admit()


class PrioritiesForVictimsOnly(Plain):
    """Who waits is taken by arrival, whatever the policy."""

    def _admit(self) -> None:
        self.waiting.sort(key=lambda one: one.number)
        super()._admit()


class PreemptsTheUrgent(Plain):
    """Where priorities rule, the victim is the youngest."""

    def _victim(self) -> Held:
        planned = [held for held, _, _ in self.plan]
        return max((one for one in self.running if one not in planned), key=lambda one: one.number)


class PrioritiesBreakTies(Plain):
    """Under equal priorities the last that came goes first."""

    def _urgency(self, one: Held) -> tuple[int, int]:
        if self.sizes["policy"] == "priority":
            return one.asked["priority"], -one.number
        return 0, one.number


class AbortLeavesBlocks(Plain):
    """An aborted request that runs keeps its blocks."""

    def abort(self, *, id: str) -> None:
        self.running = [one for one in self.running if one.id != id]
        super().abort(id=id)


class RefusedRequestsStay(Plain):
    """A request that is refused counts as one that came."""

    def add(self, **asked: Any) -> None:
        if not asked["prompt"]:
            self.free.append(self.free.pop(0))
            self.sizes = {**self.sizes, "max_num_seqs": max(1, self.sizes["max_num_seqs"] - 1)}
        super().add(**asked)


class SharedMemory(Plain):
    """Something outlives a target: each one begins with another number of free blocks."""

    made = 0

    def __init__(self, **sizes: Any) -> None:
        SharedMemory.made += 1
        fewer = SharedMemory.made % 2
        super().__init__(**{**sizes, "max_num_seqs": max(1, sizes["max_num_seqs"] - fewer)})


WRONG: dict[type[Plain], str] = {
    ChunksBeyondTheEnd: "each-token-once",
    SkipsAToken: "each-token-once",
    DrawsTooEarly: "each-token-once",
    ForgetsTheBudget: "limits-of-a-step",
    OneSequenceTooMany: "limits-of-a-step",
    VictimStaysInTheStep: "rows-of-the-running",
    ShortTables: "memory",
    FreesTooEarly: "memory",
    CachesBeforeItComputes: "prefix-cache",
    HitsOfFreedBlocks: "prefix-cache",
    WholePromptFromTheCache: "prefix-cache",
    SaltsDoNotMatter: "prefix-cache",
    CachesDrafts: "drafts",
    WaitsForEver: "everything-finishes",
    OneTokenTooMany: "ends",
    IgnoresStopTokens: "ends",
    ShortestFirst: "first-come-first-served",
    PrioritiesForVictimsOnly: "priorities",
    PreemptsTheUrgent: "priorities",
    PrioritiesBreakTies: "equal-priorities",
    AbortLeavesBlocks: "nothing-left",
    RefusedRequestsStay: "refusals",
    SharedMemory: "repeats",
}
