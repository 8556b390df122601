"""A small right engine whose "model" is a hash: it shows in its tokens if any block is wrong.

The state behind a token is a hash of that token and of the state before it, which is read from the
pool of blocks as a key would be. So a block that is shared, freed or cut wrongly changes tokens.
`wrong.py` plants one mistake each in it, `right.py` has right engines of odd habits.
"""

import math
from dataclasses import dataclass, field
from typing import Any

from paged_conformance.properties import Refused

VOCABULARY = 23
EOS = 2
MAX_LEN = 96
PIECES = [chr(97 + token) * (1 + token % 2) for token in range(VOCABULARY)]


def mix(*numbers: int) -> int:
    """A hash of 31 bits that is the same in every process."""
    value = 0x9E3779B9
    for number in numbers:
        value = ((value ^ (number + 0x7F4A7C15)) * 0x5BD1E995) & 0x7FFFFFFF
        value ^= value >> 13
    return value


@dataclass
class Sequence:
    """One sample of a request, and where it is."""

    name: str
    index: int
    prompt: list[int]
    params: dict[str, Any]
    order: int
    output: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top: list[Any] = field(default_factory=list)
    table: list[int] = field(default_factory=list)
    num_computed: int = 0
    num_told: int = 0
    text_told: int = 0
    text_end: int | None = None
    finish_reason: str | None = None

    @property
    def tokens(self) -> list[int]:
        return self.prompt + self.output

    @property
    def key(self) -> tuple[int, int]:
        return self.params.get("priority", 0), self.order


class Toy:
    """Continuous batching over a pool of blocks, with chunks, a prefix cache and preemption."""

    def __init__(
        self,
        *,
        block_size: int = 4,
        tokens: int = 512,
        seqs: int = 8,
        batch_tokens: int = 256,
        prefix_cache: bool = True,
        speculation: int = 0,
    ) -> None:
        self.block_size, self.seqs, self.batch_tokens = block_size, seqs, batch_tokens
        self.num_blocks = tokens // block_size
        self.caching, self.speculation = prefix_cache, speculation
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.num_added = 0
        self.start()

    def start(self) -> None:
        """An empty pool."""
        self.pool = [[0] * self.block_size for _ in range(self.num_blocks)]
        self.refs = [0] * self.num_blocks
        self.free = list(range(self.num_blocks))
        self.cached: dict[Any, int] = {}
        self.keys: dict[int, Any] = {}

    # What a target has

    def add(self, *, id: str, prompt: list[int], params: dict[str, Any]) -> None:
        self.check(prompt, params)
        for index in range(params.get("n", 1)):
            self.num_added += 1
            self.waiting.append(Sequence(id, index, list(prompt), dict(params), self.num_added))

    def abort(self, *, ids: list[str]) -> list[Any]:
        aborted = [seq for seq in self.waiting + self.running if seq.name in ids]
        outputs = []
        for seq in aborted:
            (self.waiting if seq in self.waiting else self.running).remove(seq)
            self.release(seq)
            seq.finish_reason = "abort"
            outputs.append(self.tell(seq))
        return outputs

    def step(self) -> list[Any]:
        batch = self.schedule()
        for seq, count in batch:
            self.compute(seq, count)
        drawing = [seq for seq, _ in batch if seq.num_computed == len(seq.tokens)]
        outputs = []
        for seq in drawing:
            self.draw(seq, drawing)
            if seq.finish_reason is not None:
                self.running.remove(seq)
                self.release(seq)
            if seq.finish_reason is not None or seq.params.get("kind") != "final":
                outputs.append(self.tell(seq))
        return outputs

    def is_busy(self) -> bool:
        return bool(self.waiting or self.running)

    def state(self) -> dict[str, int]:
        used = sum(1 for refs in self.refs if refs)
        return {"waiting": len(self.waiting), "running": len(self.running), "used blocks": used}

    def rest(self) -> None:
        """Nothing: what is cached stays good."""

    def flush(self) -> None:
        self.start()

    # How it does so

    def check(self, prompt: list[int], params: dict[str, Any]) -> None:
        """Raises Refused."""
        longest = len(prompt) + params["max_tokens"]
        tokens = [*prompt, *params.get("stop_token_ids", ())]
        right = (
            prompt and params["max_tokens"] > 0 and longest <= MAX_LEN
            and all(0 <= token < VOCABULARY for token in tokens)
            and params.get("temperature", 0) >= 0 and 0 < params.get("top_p", 1) <= 1
            and params.get("n", 1) > 0 and 0 <= params.get("logprobs", 0) <= VOCABULARY
            and params.get("min_tokens", 0) <= params["max_tokens"]
            and longest <= self.num_blocks * self.block_size
        )  # fmt: skip
        if not right:
            raise Refused("no")

    def schedule(self) -> list[tuple[Sequence, int]]:
        """Who computes how many tokens. Running sequences come first; the last is preempted."""
        budget = self.batch_tokens
        batch: list[tuple[Sequence, int]] = []
        for seq in sorted(self.running, key=lambda one: one.key):
            if seq not in self.running or budget == 0:
                continue
            count = min(len(seq.tokens) - seq.num_computed, budget)
            while seq in self.running and not self.reserve(seq, count):
                victim = max(self.running, key=lambda one: one.key)
                batch = [(one, n) for one, n in batch if one is not victim]
                self.preempt(victim)
            if seq in self.running:
                batch.append((seq, count))
                budget -= count
        self.waiting.sort(key=lambda one: one.key)
        while self.waiting and len(self.running) < self.seqs and budget:
            seq = self.waiting[0]
            if not seq.table:
                self.find(seq)
            count = min(len(seq.tokens) - seq.num_computed, budget)
            if not self.reserve(seq, count):
                self.release(seq)
                break
            self.running.append(self.waiting.pop(0))
            batch.append((seq, count))
            budget -= count
        return batch

    def preempt(self, seq: Sequence) -> None:
        self.running.remove(seq)
        self.release(seq)
        self.waiting.insert(0, seq)

    def block_key(self, seq: Sequence, number: int) -> Any:
        """What a full block's content depends on."""
        return seq.params.get("adapter", 0), tuple(seq.tokens[: (number + 1) * self.block_size])

    def find(self, seq: Sequence) -> None:
        """Takes cached blocks, but never all tokens: one must be computed."""
        while self.caching and (len(seq.table) + 1) * self.block_size < len(seq.tokens):
            block = self.cached.get(self.block_key(seq, len(seq.table)))
            if block is None:
                break
            if self.refs[block] == 0:
                self.free.remove(block)
            self.refs[block] += 1
            seq.table.append(block)
        seq.num_computed = len(seq.table) * self.block_size

    def reserve(self, seq: Sequence, count: int) -> bool:
        """Blocks for so many more tokens; False, and no change, if there are too few."""
        needed = -(-(seq.num_computed + count) // self.block_size) - len(seq.table)
        if needed > len(self.free):
            return False
        for _ in range(needed):
            block = self.free.pop(0)
            self.forget(block)
            self.refs[block] = 1
            seq.table.append(block)
        return True

    def forget(self, block: int) -> None:
        key = self.keys.pop(block, None)
        if key is not None:
            del self.cached[key]

    def release(self, seq: Sequence) -> None:
        for block in reversed(seq.table):
            self.refs[block] -= 1
            if self.refs[block] == 0:
                self.free.append(block)
        seq.table, seq.num_computed = [], 0

    def compute(self, seq: Sequence, count: int) -> None:
        for place in range(seq.num_computed, seq.num_computed + count):
            state = self.read(seq, place - 1) if place else 0
            token = seq.tokens[place]
            self.write(seq, place, mix(state, token, seq.params.get("adapter", 0)))
            if (place + 1) % self.block_size == 0:
                self.register(seq, place // self.block_size)
        seq.num_computed += count

    def register(self, seq: Sequence, number: int) -> None:
        key, block = self.block_key(seq, number), seq.table[number]
        if self.caching and key not in self.cached:
            self.cached[key] = block
            self.keys[block] = key

    def read(self, seq: Sequence, place: int) -> int:
        return self.pool[seq.table[place // self.block_size]][place % self.block_size]

    def write(self, seq: Sequence, place: int, state: int) -> None:
        self.pool[seq.table[place // self.block_size]][place % self.block_size] = state

    def logits(self, seq: Sequence, state: int, batch: list[Sequence]) -> list[float]:
        """The model's, with the request's own penalties and bias."""
        params = seq.params
        row = [mix(state, token) % 9973 / 1500 for token in range(VOCABULARY)]
        for token in set(seq.output):
            row[token] -= params.get("presence_penalty", 0.0)
            row[token] -= params.get("frequency_penalty", 0.0) * seq.output.count(token)
        for token in set(seq.tokens):
            row[token] /= params.get("repetition_penalty", 1.0)
        for text, bias in params.get("logit_bias", {}).items():
            row[int(text)] += bias
        if len(seq.output) < params.get("min_tokens", 0):
            for token in self.ends(seq):
                row[token] = -1e9
        return row

    def ends(self, seq: Sequence) -> set[int]:
        own = set() if seq.params.get("ignore_eos") else {EOS}
        return own | set(seq.params.get("stop_token_ids", ()))

    def draw(self, seq: Sequence, batch: list[Sequence]) -> None:
        """The next token; with guesses, further ones as long as they were guessed."""
        state = self.read(seq, len(seq.tokens) - 1)
        for number in range(1 + self.speculation):
            row = self.logits(seq, state, batch)
            token = self.choose(seq, row)
            self.append(seq, row, token)
            if seq.finish_reason or not self.guessed(seq, token) or number == self.speculation:
                return
            state = mix(state, token, seq.params.get("adapter", 0))

    def guessed(self, seq: Sequence, token: int) -> bool:
        return token % 3 == 0

    def choose(self, seq: Sequence, row: list[float]) -> int:
        if seq.params.get("beams"):
            return self.look_ahead(seq, row)
        heat = seq.params.get("temperature", 0)
        order = sorted(range(VOCABULARY), key=lambda token: -row[token])
        if heat == 0:
            return order[0]
        weights = [math.exp((row[token] - row[order[0]]) / heat) for token in order]
        total, kept = sum(weights), 0.0
        filtered = []
        for token, weight in zip(order, weights, strict=True):
            if kept < seq.params.get("top_p", 1.0) * total:
                filtered.append((token, weight))
            kept += weight
        if seq.params.get("top_k", -1) > 0:
            filtered = filtered[: seq.params["top_k"]]
        rest = self.chance(seq) * sum(weight for _, weight in filtered)
        for token, weight in filtered:
            rest -= weight
            if rest <= 0:
                return token
        return filtered[-1][0]

    def look_ahead(self, seq: Sequence, row: list[float]) -> int:
        """The one of the best few that has the best successor: a search, and no sampling."""
        order = sorted(range(VOCABULARY), key=lambda token: -row[token])[: seq.params["beams"]]
        state = self.read(seq, len(seq.tokens) - 1)
        return max(order, key=lambda token: row[token] + mix(state, token, 7) % 97 / 40)

    def chance(self, seq: Sequence) -> float:
        seed = seq.params.get("seed")
        return mix(seq.order if seed is None else seed, seq.index, len(seq.output)) / 2**31

    def append(self, seq: Sequence, row: list[float], token: int) -> None:
        total = math.log(sum(math.exp(one) for one in row if one > -1e8))
        order = sorted(range(VOCABULARY), key=lambda one: -row[one])[: seq.params.get("logprobs")]
        seq.output.append(token)
        seq.logprobs.append(row[token] - total)
        seq.top.append([[one, row[one] - total] for one in order])
        seq.finish_reason = self.reason(seq)

    def text(self, seq: Sequence) -> str:
        stopped = seq.finish_reason == "stop" and seq.output[-1] in self.ends(seq)
        return "".join(PIECES[token] for token in seq.output[: -1 if stopped else None])

    def reason(self, seq: Sequence) -> str | None:
        """Why the sample ends with its last token; None if it goes on."""
        params, text = seq.params, self.text(seq)
        enough = len(seq.output) > params.get("min_tokens", 0)
        least = len("".join(PIECES[one] for one in seq.output[: params.get("min_tokens", 0)]))
        starts = [
            (text.find(one, max(0, least - len(one) + 1)), one) for one in params.get("stop", ())
        ]
        found = [(start, stop) for start, stop in starts if start >= 0]
        if found and enough:
            start, stop = min(found)
            seq.text_end = start + (len(stop) if params.get("include_stop") else 0)
            return "stop"
        if seq.output[-1] in self.ends(seq) and enough:
            return "stop"
        return "length" if len(seq.output) >= params["max_tokens"] else None

    def shown(self, seq: Sequence) -> str:
        """The text that is certain: what may be the beginning of a stop string is held back."""
        text = self.text(seq)
        if seq.text_end is not None:
            return text[: seq.text_end]
        held = max((len(stop) - 1 for stop in seq.params.get("stop", ())), default=0)
        return text if seq.finish_reason is not None else text[: max(0, len(text) - held)]

    def tell(self, seq: Sequence) -> dict[str, Any]:
        """The output, and what has been told by it."""
        start = seq.num_told if seq.params.get("kind") == "delta" else 0
        text = self.shown(seq)
        text = text[seq.text_told :] if start or seq.params.get("kind") == "delta" else text
        seq.num_told, seq.text_told = len(seq.output), len(self.shown(seq))
        return {
            "id": seq.name,
            "index": seq.index,
            "token_ids": seq.output[start:],
            "text": text,
            "logprobs": seq.logprobs[start:],
            "top": seq.top[start:] if seq.params.get("logprobs") else None,
            "finish_reason": seq.finish_reason,
        }


class ToyFactory:
    """`make` of a class of toys.

    Args:
        without: Capabilities that its engines lack.
    """

    def __init__(self, kind: type[Toy] = Toy, without: tuple[str, ...] = ()) -> None:
        self.kind = kind
        self.capabilities = WORDS - set(without)
        self.sizes = {
            "vocabulary": VOCABULARY, "max_len": MAX_LEN, "eos": EOS, "max_tokens": 12,
            "block_size": 4, "min_block": 1, "max_block": 8, "adapters": 2, "quiet_steps": 300,
        }  # fmt: skip

    def __call__(self, **sizes: Any) -> Toy:
        return self.kind(**sizes)


WORDS = {
    "draws", "seeds", "filters", "samples", "greedy_samples", "beams", "min_tokens", "stop_ids",
    "stops", "include_stop", "eos", "logprobs", "penalties", "bias", "priorities", "kinds",
    "adapters", "names", "long_prompts", "prefix_cache", "sessions", "state", "pools", "budgets",
    "speculation",
}  # fmt: skip
make = ToyFactory()
