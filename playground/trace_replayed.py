"""An engine's trace, played again: tokens, computed counts and what memory holds, step by step.

Nothing here judges; `trace_checks` does. A slot of memory holds the tokens up to its own, as one
number, since keys and values depend on all tokens before them.

>>> prefixes([5, 6]) == prefixes([5, 6, 7])[:2], prefixes([6])[0] == prefixes([5, 6])[1]
(True, False)
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

type Step = Mapping[str, Any]
type Memory = list[list[int | None]]


def prefixes(tokens: Sequence[int]) -> list[int]:
    """A number for each position: it stands for the tokens up to there."""
    found, before = [], 0
    for token in tokens:
        before = hash((before, token))
        found.append(before)
    return found


@dataclass
class Known:
    """A sequence as far as the trace has told it."""

    request: str
    tokens: list[int]
    computed: int = 0
    device: str = "gpu"
    lost_blocks: bool = False
    """Was it preempted, and its blocks dropped?"""
    ended: bool = False


@dataclass
class Entry:
    """What a step computes of a sequence."""

    name: str
    seq: Known
    start: int
    end: int
    drafts: list[int]
    said_known: int | None
    admitted: bool
    """Had its request no table before? (A preempted one may come back sample by sample.)"""

    @property
    def fed(self) -> list[int]:
        """All tokens up to `end`, the drafts last."""
        return [*self.seq.tokens, *self.drafts][: self.end]


@dataclass
class Replayed:
    """The state as the steps go by.

    Attributes:
        tables, cpu_tables: the tables after the step before.
        waiting, running: those of the step before that have not ended; None without queues.
        entries: what the step at hand computes.
    """

    trace: Mapping[str, Any]
    prompts: dict[str, list[int]] = field(init=False)
    seqs: dict[str, Known] = field(default_factory=dict)
    gpu: Memory = field(init=False)
    cpu: Memory = field(init=False)
    tables: dict[str, list[int]] = field(default_factory=dict)
    cpu_tables: dict[str, list[int]] = field(default_factory=dict)
    arrived: list[str] = field(default_factory=list)
    waiting: list[str] | None = field(default_factory=list)
    running: list[str] | None = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)

    def __post_init__(self) -> None:
        size = self.trace["block_size"]
        self.prompts = {one["id"]: one["prompt"] for one in self.trace["requests"]}
        self.gpu = [[None] * size for _ in range(self.trace["num_gpu_blocks"])]
        self.cpu = [[None] * size for _ in range(self.trace.get("num_cpu_blocks", 0))]

    @property
    def block_size(self) -> int:
        return int(self.trace["block_size"])

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def of_request(self, name: str) -> Iterator[tuple[str, Known]]:
        """Its sequences that have not ended."""
        for seq, known in self.seqs.items():
            if known.request == name and not known.ended:
                yield seq, known

    def request_of(self, seq: str) -> str | None:
        """A request that has arrived and was never scheduled stands for its first sequence."""
        if seq in self.seqs:
            return self.seqs[seq].request
        return seq if seq in self.arrived else None

    def unfinished(self) -> list[str]:
        """Requests that have arrived, and have a sequence that has not ended, or none yet."""
        names = {known.request for known in self.seqs.values()}
        return [one for one in self.arrived if one not in names or any(self.of_request(one))]

    def plan(self, step: Step) -> None:
        """Up to the state that the step's tables, counts and queues show."""
        self.arrived += step.get("arrived", [])
        for name in step.get("preempted", []):
            for seq, known in self.of_request(name):
                if seq in step.get("cpu_tables", {}):
                    known.device = "cpu"
                else:
                    known.computed, known.lost_blocks = 0, True
        for seq in step["tables"]:
            if seq in self.seqs:
                self.seqs[seq].device = "gpu"
        self.entries = [self._entry(one) for one in step["scheduled"]]

    def _entry(self, one: Mapping[str, Any]) -> Entry:
        name = one["seq"]
        if name not in self.seqs:
            request = one.get("request", name)
            self.seqs[name] = Known(request, list(self.prompts.get(request, [])))
        end, drafts = one["start"] + one["tokens"], list(one.get("drafts", []))
        known = self.seqs[name]
        of_request = (seq for seq, other in self.seqs.items() if other.request == known.request)
        new = not any(seq in self.tables for seq in of_request)
        return Entry(name, known, one["start"], end, drafts, one.get("known"), new)

    def move(self, step: Step) -> None:
        """Swap in, swap out, copy: in this order."""
        _move(self.cpu, self.gpu, step.get("swap_in", []))
        _move(self.gpu, self.cpu, step.get("swap_out", []))
        _move(self.gpu, self.gpu, step.get("copies", []))

    def write(self, step: Step) -> None:
        """What the model writes: each position into its slot."""
        for entry in self.entries:
            table, hashes = step["tables"].get(entry.name, []), prefixes(entry.fed)
            for position in range(entry.start, min(entry.end, len(hashes))):
                logical, offset = divmod(position, self.block_size)
                if logical < len(table) and table[logical] < len(self.gpu):
                    self.gpu[table[logical]][offset] = hashes[position]

    def draw(self, step: Step) -> None:
        """What the step has added, forked and ended."""
        for child, parent in step.get("forked", {}).items():
            known = self.seqs.get(parent)
            if known is not None:
                self.seqs[child] = Known(known.request, list(known.tokens), known.computed)
        for name, request in step.get("started", {}).items():
            self.seqs[name] = Known(request, list(self.prompts.get(request, [])))
        drawn = step.get("drawn", {})
        for entry in self.entries:
            right = max(0, len(drawn.get(entry.name, [])) - 1) if entry.drafts else 0
            entry.seq.computed = entry.end - len(entry.drafts) + right
        for child, parent in step.get("forked", {}).items():
            if parent in self.seqs:
                self.seqs[child].computed = self.seqs[parent].computed
        for name, tokens in drawn.items():
            if name in self.seqs:
                self.seqs[name].tokens += tokens
        for name in step.get("finished", []):
            if name in self.seqs:
                self.seqs[name].ended = True
        self.tables, self.cpu_tables = dict(step["tables"]), dict(step.get("cpu_tables", {}))
        self._remember(step)

    def _remember(self, step: Step) -> None:
        queues = step.get("queues")
        there = set(self.unfinished())
        self.waiting = None if queues is None else [n for n in queues["waiting"] if n in there]
        self.running = None if queues is None else [n for n in queues["running"] if n in there]


def _move(source: Memory, target: Memory, pairs: Sequence[Sequence[int]]) -> None:
    contents = [list(source[src]) for src, _ in pairs]
    for (_, dst), content in zip(pairs, contents, strict=True):
        target[dst] = content
