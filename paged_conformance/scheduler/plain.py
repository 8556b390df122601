"""A small scheduler that is right: the wrong ones and the odd ones are made of it.

Running requests go first, in the order of service; who lacks a block takes it from the last of
them. Then waiting ones are admitted. The prefix cache knows full blocks by all tokens up to their
end, from the moment at which they are computed.
"""

from typing import Any

from paged_conformance.properties import Refused
from paged_conformance.scheduler.saying import EOS


class Held:
    """A request and what is known of it."""

    def __init__(self, asked: dict[str, Any], number: int) -> None:
        self.asked, self.number = asked, number
        self.id, self.tokens = asked["id"], list(asked["prompt"])
        self.computed = 0
        self.table: list[int] = []
        self.drafts: list[int] = []

    @property
    def output(self) -> list[int]:
        return self.tokens[len(self.asked["prompt"]) :]


class Plain:
    """A target; the methods with a leading underscore are what variants change."""

    capabilities = frozenset(
        [
            "tables",
            "chunks",
            "threshold",
            "prefix_cache",
            "salts",
            "fcfs",
            "priorities",
            "aborts",
            "state",
            "admission",
            "model_len",
            "stop_token_ids",
            "repeats",
            "drafts",
        ]
    )

    def __init__(self, **sizes: Any) -> None:
        self.sizes = sizes
        self.waiting: list[Held] = []
        self.running: list[Held] = []
        self.free = list(range(sizes["num_blocks"]))
        self.uses: dict[int, int] = {}
        self.cached: dict[Any, int] = {}
        self.plan: list[tuple[Held, int, list[int]]] = []
        self.number = 0

    def add(self, **asked: Any) -> None:
        sizes = self.sizes
        longest = min(len(asked["prompt"]) + asked["max_tokens"], sizes["max_model_len"])
        if not 0 < len(asked["prompt"]) < sizes["max_model_len"]:
            raise Refused("a prompt of this length")
        if any(one.id == asked["id"] for one in (*self.waiting, *self.running)):
            raise Refused("the id is in use")
        if self._blocks(longest) > sizes["num_blocks"]:
            raise Refused("it does not fit")
        self.number += 1
        self.waiting.append(Held(asked, self.number))
        self.waiting.sort(key=self._urgency)

    def abort(self, *, id: str) -> None:
        for one in (*self.waiting, *self.running):
            if one.id == id:
                self._remove(one)

    def schedule(self, *, drafts: list[dict[str, Any]]) -> dict[str, Any]:
        for one in (*self.waiting, *self.running):
            given = [draft["tokens"] for draft in drafts if draft["id"] == one.id]
            one.drafts = given[0] if given else []
        self.plan = []
        preempted = self._advance_running()
        if not preempted:
            self._admit()
        rows = [
            {
                "id": one.id, "start": one.computed, "tokens": num_tokens, "drafts": guessed,
                "table": list(one.table),
            }
            for one, num_tokens, guessed in self.plan
        ]  # fmt: skip
        return {"rows": rows, "preempted": [{"id": one.id} for one in preempted]}

    def update(self, *, tokens: list[dict[str, Any]]) -> list[dict[str, Any]]:
        drawn = {item["id"]: item["tokens"] for item in tokens}
        ended = []
        for one, num_tokens, guessed in self.plan:
            if one not in self.running:
                continue
            full = len(one.tokens)
            one.computed += num_tokens - len(guessed)
            if one.computed < full:
                self._remember(one)
                continue
            for number, token in enumerate(drawn[one.id]):
                one.computed += number > 0
                one.tokens.append(token)
                reason = self._reason(one)
                if reason:
                    break
            self._remember(one)
            if reason:
                ended.append({"id": one.id, "reason": reason, "tokens": one.output})
                self._remove(one)
        self.plan = []
        return ended

    def state(self) -> dict[str, Any]:
        names = [one.id for one in (*self.waiting, *self.running)]
        return {
            "unfinished": names, "free_blocks": len(self.free),
            "num_blocks": self.sizes["num_blocks"],
        }  # fmt: skip

    # What may be done otherwise.

    def _urgency(self, one: Held) -> tuple[int, int]:
        return (one.asked["priority"] if self.sizes["policy"] == "priority" else 0, one.number)

    def _victim(self) -> Held:
        return self.running[-1]

    def _watermark(self) -> int:
        return 0

    def _reason(self, one: Held) -> str | None:
        last, asked = one.tokens[-1], one.asked
        if last in asked["stop_token_ids"] or (last == EOS and not asked["ignore_eos"]):
            return "stop"
        if len(one.output) >= asked["max_tokens"] or self._full(one):
            return "length"
        return None

    def _full(self, one: Held) -> bool:
        return len(one.tokens) >= int(self.sizes["max_model_len"])

    def _budget(self) -> int:
        used = sum(num_tokens for _, num_tokens, _ in self.plan)
        return int(self.sizes["max_num_batched_tokens"]) - used

    def _chunk(self, missing: int) -> int:
        if not self.sizes["chunked"]:
            return missing if missing <= self._budget() else 0
        return min(missing, self._budget(), self.sizes["threshold"] or missing)

    def _advance_running(self) -> list[Held]:
        preempted: list[Held] = []
        at = 0
        while at < len(self.running):
            one = self.running[at]
            num_tokens = self._chunk(len(one.tokens) - one.computed)
            guessed = self._guesses(one, num_tokens)
            if not num_tokens:
                at += 1
                continue
            while not self._grow(one, one.computed + num_tokens + len(guessed)):
                victim = self._victim()
                self._preempt(victim)
                preempted.append(victim)
                if victim is one:
                    return preempted
            self.plan.append((one, num_tokens + len(guessed), guessed))
            at += 1
        return preempted

    def _guesses(self, one: Held, num_tokens: int) -> list[int]:
        if one.computed + num_tokens < len(one.tokens):
            return []
        longest = min(
            len(one.asked["prompt"]) + one.asked["max_tokens"], self.sizes["max_model_len"]
        )
        room = min(self._budget() - num_tokens, longest - 1 - len(one.tokens))
        later = sum(1 for other in self.running if other not in [held for held, _, _ in self.plan])
        return one.drafts[: max(0, min(room, room - later))]

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.sizes["max_num_seqs"] and self._budget():
            one = self.waiting[0]
            hits = self._hits(one) if self.sizes["prefix_cache"] else []
            start = len(hits) * self.sizes["block_size"]
            num_tokens = self._chunk(len(one.tokens) - start)
            new = self._blocks(start + num_tokens) - len(hits)
            new += sum(1 for block in hits if not self.uses.get(block))
            low = len(self.free) - new < (self._watermark() if self.running else 0)
            if not num_tokens or low:
                return
            for block in hits:
                if not self.uses.get(block):
                    self.free.remove(block)
                self.uses[block] = self.uses.get(block, 0) + 1
            one.table, one.computed = list(hits), start
            self._grow(one, start + num_tokens)
            self.waiting.remove(one)
            self.running.append(one)
            self.running.sort(key=self._urgency)
            self.plan.append((one, num_tokens, []))

    def _preempt(self, victim: Held) -> None:
        self._remove(victim)
        victim.computed = 0
        self.waiting.append(victim)
        self.waiting.sort(key=self._urgency)

    def _hits(self, one: Held) -> list[int]:
        hits: list[int] = []
        size = self.sizes["block_size"]
        for end in range(size, self._most_hit(one) + 1, size):
            block = self.cached.get(self._key(one, end))
            if block is None:
                break
            hits.append(block)
        return hits

    def _most_hit(self, one: Held) -> int:
        return len(one.tokens) - 1

    def _key(self, one: Held, end: int) -> Any:
        return one.asked["salt"], one.asked["adapter"], tuple(one.tokens[:end])

    def _remember(self, one: Held) -> None:
        size = self.sizes["block_size"]
        for number in range(one.computed // size):
            key = self._key(one, (number + 1) * size)
            self.cached.setdefault(key, one.table[number])

    def _grow(self, one: Held, end: int) -> bool:
        need = self._blocks(end) - len(one.table)
        if need > len(self.free):
            return False
        for _ in range(need):
            one.table.append(self._take())
        return True

    def _take(self) -> int:
        block = self.free.pop(0)
        self.uses[block] = 1
        self._forget(block)
        return block

    def _forget(self, block: int) -> None:
        for key in [key for key, known in self.cached.items() if known == block]:
            del self.cached[key]

    def _blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // int(self.sizes["block_size"]))

    def _remove(self, one: Held) -> None:
        for queue in (self.waiting, self.running):
            if one in queue:
                queue.remove(one)
        self._release(one)

    def _release(self, one: Held) -> None:
        for block in reversed(one.table):
            self.uses[block] -= 1
            if not self.uses[block]:
                self.free.append(block)
        one.table = []
