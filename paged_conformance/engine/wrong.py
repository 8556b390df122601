"""Wrong engines: the toy with one mistake each. Its docstring says what; a test that it is found.

`CAUGHT_BY` has the property that notices each of them.
"""

from typing import Any

from paged_conformance.engine.toy import EOS, VOCABULARY, Sequence, Toy, mix
from paged_conformance.properties import Refused


class StaleHits(Toy):
    """A block stays in the cache when another sequence gets it: a hit reads the other's states."""

    def forget(self, block: int) -> None:
        pass


class HitsWithoutPrefix(Toy):
    """The cache's key has a block's own tokens, and not those before it."""

    def block_key(self, seq: Sequence, number: int) -> Any:
        size = self.block_size
        return tuple(seq.tokens[number * size : (number + 1) * size])


class HitsOfOtherAdapters(Toy):
    """The cache's key leaves the adapter out."""

    def block_key(self, seq: Sequence, number: int) -> Any:
        return tuple(seq.tokens[: (number + 1) * self.block_size])


class DecodesAreNotWritten(Toy):
    """At the first place of a block, a decoded token's state goes to the block before it."""

    def write(self, seq: Sequence, place: int, state: int) -> None:
        first = place > len(seq.prompt) and place % self.block_size == 0
        super().write(seq, place, mix(state, 1) if first else state)


class ForgetsAtPreemption(Toy):
    """A preempted sequence starts again behind its prompt."""

    def preempt(self, seq: Sequence) -> None:
        seq.output, seq.logprobs, seq.top = [], [], []
        super().preempt(seq)


class ChunksTooLong(Toy):
    """A chunk's last token is counted as computed and is not, where the budget cut a prompt."""

    def compute(self, seq: Sequence, count: int) -> None:
        cut = seq.num_computed + count < len(seq.tokens) and count > 1
        super().compute(seq, count - 1 if cut else count)
        seq.num_computed += cut


class BlocksAreLost(Toy):
    """The last block of a sequence that ends on a block's end is never freed."""

    def release(self, seq: Sequence) -> None:
        if seq.finish_reason and seq.table and seq.num_computed % self.block_size == 0:
            seq.table.pop()
        super().release(seq)


class FullPoolHangs(Toy):
    """Nobody is admitted into the last blocks: a request that needs all of them waits forever."""

    def reserve(self, seq: Sequence, count: int) -> bool:
        return (seq in self.running or len(self.free) > len(seq.tokens)) and super().reserve(
            seq, count
        )


class RestKeepsTheCache(Toy):
    """The end of a session clears the pool, and keeps the cache's entries."""

    def rest(self) -> None:
        self.pool = [[0] * self.block_size for _ in range(self.num_blocks)]


class RestLeavesASign(Toy):
    """The first request of a second session is dropped: the sign to stop is still there."""

    stopping = False

    def rest(self) -> None:
        self.stopping = True

    def step(self) -> list[Any]:
        if self.stopping:
            self.waiting.clear()
            self.stopping = False
        return super().step()


class AbortsFreeTwice(Toy):
    """An abort returns a sequence's last block twice."""

    def abort(self, *, ids: list[str]) -> list[Any]:
        last = [seq.table[-1] for seq in self.running if seq.name in ids and seq.table]
        outputs = super().abort(ids=ids)
        self.free += last
        return outputs


class AbortsOfWaitingAreLost(Toy):
    """An abort does not find requests that wait."""

    def abort(self, *, ids: list[str]) -> list[Any]:
        kept, self.waiting = self.waiting, []
        outputs = super().abort(ids=ids)
        self.waiting = kept
        return outputs


class AbortsByBeginning(Toy):
    """An abort of r1 ends r1-2 too, and whoever else's name begins so."""

    def abort(self, *, ids: list[str]) -> list[Any]:
        names = {seq.name for seq in self.waiting + self.running if seq.name[:1] in "".join(ids)}
        return super().abort(ids=sorted(names) if ids else ids)


class AbortKeepsPlace(Toy):
    """An abort of a running request keeps its place in the batch: it is counted to the end."""

    def abort(self, *, ids: list[str]) -> list[Any]:
        self.seqs -= sum(1 for seq in self.running if seq.name in ids)
        return super().abort(ids=ids)


class OneGenerator(Toy):
    """All requests draw from one generator: a seed only sets where it is."""

    drawn = 0

    def chance(self, seq: Sequence) -> float:
        self.drawn += 1
        return mix(seq.params.get("seed") or 0, self.drawn) / 2**31


class FirstSampleEndsAll(Toy):
    """When one sample ends, those behind it are dropped."""

    def step(self) -> list[Any]:
        outputs = super().step()
        ended = {one["id"] for one in outputs if one["finish_reason"] and one["index"] == 0}
        for seq in [one for one in self.running if one.name in ended]:
            self.running.remove(seq)
            self.release(seq)
        return outputs


class BiasOfTheFirst(Toy):
    """The first row's bias and penalties are applied to all rows."""

    def logits(self, seq: Sequence, state: int, batch: list[Sequence]) -> list[float]:
        first = batch[0].params
        own, seq.params = (
            seq.params,
            seq.params
            | {name: first[name] for name in ("logit_bias", "presence_penalty") if name in first},
        )
        row = super().logits(seq, state, batch)
        seq.params = own
        return row


class TextTooSoon(Toy):
    """Nothing is held back: the beginning of a stop string is shown, and taken back."""

    def shown(self, seq: Sequence) -> str:
        return self.text(seq) if seq.text_end is None else self.text(seq)[: seq.text_end]


class OneStopString(Toy):
    """Only the first stop string is looked for."""

    def reason(self, seq: Sequence) -> str | None:
        own, seq.params = seq.params, seq.params | {"stop": seq.params.get("stop", [])[:1]}
        reason = super().reason(seq)
        seq.params = own
        return reason


class StopsTooSoon(Toy):
    """Stop tokens are looked for before min_tokens as well."""

    def reason(self, seq: Sequence) -> str | None:
        stops = seq.params.get("stop_token_ids", ())
        return "stop" if seq.output[-1] in stops else super().reason(seq)

    def logits(self, seq: Sequence, state: int, batch: list[Sequence]) -> list[float]:
        own, seq.params = seq.params, seq.params | {"min_tokens": 0}
        row = super().logits(seq, state, batch)
        seq.params = own
        return row


class SecondStopToken(Toy):
    """Only the last of the stop tokens ends an output."""

    def ends(self, seq: Sequence) -> set[int]:
        own = set() if seq.params.get("ignore_eos") else {EOS}
        return own | set(seq.params.get("stop_token_ids", [])[-1:])


class OneTokenTooMany(Toy):
    """A request whose prompt was computed in one step gets one token more than it asked for."""

    def add(self, *, id: str, prompt: list[int], params: dict[str, Any]) -> None:
        super().add(id=id, prompt=prompt, params=params)
        for seq in self.waiting:
            if seq.name == id and len(prompt) % self.block_size == 1:
                seq.params["max_tokens"] += 1


class LongestWraps(Toy):
    """A request that fills the longest sequence exactly is accepted and ends one token early."""

    def reason(self, seq: Sequence) -> str | None:
        full = len(seq.tokens) == 95 and not seq.params.get("stop")
        return "length" if full else super().reason(seq)


class RepeatsInParts(Toy):
    """A part of a text begins with the last letter of the part before it."""

    def tell(self, seq: Sequence) -> dict[str, Any]:
        if seq.params.get("kind") == "delta":
            seq.text_told = max(0, seq.text_told - 1)
        return super().tell(seq)


class TellsTheEndTwice(Toy):
    """The end of an output of kind "final" is told again a step later."""

    again: tuple[Any, ...] = ()

    def step(self) -> list[Any]:
        told, self.again = list(self.again), ()
        outputs = super().step()
        ends = [one for one in outputs if one["finish_reason"] == "length"]
        self.again = tuple(ends) if len(outputs) > len(ends) else ()
        return told + outputs

    def is_busy(self) -> bool:
        return super().is_busy() or bool(self.again)


class LogprobsOfTheNeighbour(Toy):
    """With three rows or more, the log-probabilities of a row are those of the last."""

    def draw(self, seq: Sequence, batch: list[Sequence]) -> None:
        super().draw(seq, batch)
        if len(batch) > 2 and batch[0] is not seq and batch[0].logprobs:
            seq.logprobs[-1] = batch[0].logprobs[-1]


class TopByToken(Toy):
    """The most probable tokens are listed in the order of their numbers."""

    def append(self, seq: Sequence, row: list[float], token: int) -> None:
        super().append(seq, row, token)
        seq.top[-1].sort()


class RefusedNamesStay(Toy):
    """What refuses a request has put it into the queue before."""

    def add(self, *, id: str, prompt: list[int], params: dict[str, Any]) -> None:
        try:
            super().add(id=id, prompt=prompt, params=params)
        except Refused:
            if prompt:
                self.waiting.append(Sequence(id, 0, [1], {"max_tokens": 1}, 0))
            raise


class TakesAnyToken(Toy):
    """Prompts are not checked: a token outside of the vocabulary ends the whole engine."""

    def check(self, prompt: list[int], params: dict[str, Any]) -> None:
        super().check([token % VOCABULARY for token in prompt], params)

    def read(self, seq: Sequence, place: int) -> int:
        if seq.tokens[place] >= VOCABULARY:
            raise IndexError("no such row")
        return super().read(seq, place)


class KeepsEveryGuess(Toy):
    """A guess behind a wrong one is kept."""

    def guessed(self, seq: Sequence, token: int) -> bool:
        return len(seq.output) % 4 > 0

    def append(self, seq: Sequence, row: list[float], token: int) -> None:
        wrong = (
            self.speculation > 1 and len(seq.output) % 4 == 3 and not seq.params.get("min_tokens")
        )
        super().append(seq, row, (token + 1) % VOCABULARY if wrong else token)


class PriorityIsATurn(Toy):
    """A request of a lower priority is computed with its number in the queue."""

    def logits(self, seq: Sequence, state: int, batch: list[Sequence]) -> list[float]:
        late = max(0, seq.params.get("priority", 0)) * (len(batch) > 1)
        return super().logits(seq, mix(state, late) if late else state, batch)


class AdmissionByName(Toy):
    """The fourth request of an engine's life is computed with another state."""

    def logits(self, seq: Sequence, state: int, batch: list[Sequence]) -> list[float]:
        return super().logits(seq, state + (seq.order == 4), batch)


class BeamsOfTheBatch(Toy):
    """A search looks ahead from the state of the batch's last row."""

    def draw(self, seq: Sequence, batch: list[Sequence]) -> None:
        self.last = batch[-1]
        super().draw(seq, batch)

    def look_ahead(self, seq: Sequence, row: list[float]) -> int:
        order = sorted(range(VOCABULARY), key=lambda token: -row[token])[: seq.params["beams"]]
        state = self.read(self.last, len(self.last.tokens) - 1) if self.last.table else 0
        return max(order, key=lambda token: row[token] + mix(state, token, 7) % 97 / 40)


class OneBesidesTheBest(Toy):
    """top_k keeps one token more."""

    def choose(self, seq: Sequence, row: list[float]) -> int:
        own = seq.params
        if own.get("top_k", -1) > 0:
            seq.params = own | {"top_k": own["top_k"] + 1}
        token = super().choose(seq, row)
        seq.params = own
        return token


CAUGHT_BY: dict[type[Toy], str] = {
    StaleHits: "crowded-pool",
    HitsWithoutPrefix: "warm-as-cold",
    HitsOfOtherAdapters: "adapters-apart",
    DecodesAreNotWritten: "goes-on-the-same",
    ForgetsAtPreemption: "crowded-pool",
    ChunksTooLong: "any-budget",
    BlocksAreLost: "greedy-in-company",
    FullPoolHangs: "crowded-pool",
    RestKeepsTheCache: "later-sessions",
    RestLeavesASign: "later-sessions",
    AbortsFreeTwice: "storms-of-aborts",
    AbortsOfWaitingAreLost: "storms-of-aborts",
    AbortsByBeginning: "storms-of-aborts",
    AbortKeepsPlace: "storms-of-aborts",
    OneGenerator: "seeds-repeat",
    FirstSampleEndsAll: "samples-are-complete",
    BiasOfTheFirst: "parameters-are-ones-own",
    TextTooSoon: "stops-of-every-kind",
    OneStopString: "ends-at-the-first-stop",
    StopsTooSoon: "stops-of-every-kind",
    SecondStopToken: "ends-at-the-first-stop",
    OneTokenTooMany: "greedy-in-company",
    LongestWraps: "ends-at-its-length",
    RepeatsInParts: "streams-add-up",
    TellsTheEndTwice: "everything-together",
    LogprobsOfTheNeighbour: "logprobs-are-probabilities",
    TopByToken: "logprobs-are-probabilities",
    RefusedNamesStay: "refusals-leave-no-trace",
    TakesAnyToken: "refusals-leave-no-trace",
    KeepsEveryGuess: "any-guesses",
    PriorityIsATurn: "priorities-change-nothing",
    AdmissionByName: "any-order",
    BeamsOfTheBatch: "beams-in-company",
    OneBesidesTheBest: "options-that-do-nothing",
}
