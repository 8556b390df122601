"""A model that speaks over the oracle's blocks, and what a mistake with a block does to its text.

    speak    one request, word by word; a block may be freed, poisoned or moved on the way
    search   a beam search, by the oracle's scheduler: forks, copies on write, scores

A *poisoned* block has the same number in place of every key and value. Poison in a block that is
free changes nothing, since no table names it:

>>> asked = {"prompt": "once there was a red fox named ann .", "words": 12, "at": 6}
>>> [speak(asked | {"event": event})["differ"] for event in ("poison", "move", "free-early")]
[0, 0, 6]
"""

from collections.abc import Sequence as SequenceOf
from functools import cache, lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple

from playground.tiny_llama import BlockMemory, TinyLlama, Vector, log_softmax
from reference.admission import AdmissionError
from reference.beam_search import num_candidates
from reference.blocks import BlockManager, BlockPair
from reference.scheduler import Scheduler
from reference.sequence import SequenceGroup

BLOCK_SIZE, NUM_BLOCKS = 4, 24
POISON = 7.0
EARLIER = "there was once a white owl named nina ."
"""A request that has ended before: its blocks are free, and still hold its words."""
EVENTS = {
    "": "Nothing happens on the way.",
    "poison": "Before word {at}, every free block is poisoned: {blocks}. No table names them.",
    "move": "Before word {at}, block {blocks} was copied and the table changed. The old block is "
    "free, and poisoned.",
    "free-early": "Before word {at}, block {blocks} was freed and poisoned, though the table still "
    "names it.",
}
MOST_WORDS, MOST_TOKENS = 60, 72
END = "."


View = list[tuple[Any, ...]]


class Blocks(BlockManager):
    """The oracle's, with two operations that it does not have: a move, and a bug."""

    def move(self, seq_id: int, logical: int) -> BlockPair:
        """Another physical block for a logical one; the pair is to be copied."""
        blocks = self._tables[seq_id].blocks
        old, blocks[logical] = blocks[logical], self.gpu.allocate()
        self.gpu.free(old)
        return old, blocks[logical]

    def free_early(self, seq_id: int, logical: int) -> int:
        """The block is free, and the table goes on naming it."""
        block = self._tables[seq_id].blocks[logical]
        self.gpu.free(block)
        return block


class Step(NamedTuple):
    """One word: all logits it was chosen from, and memory behind it."""

    token: int
    logits: Vector
    table: list[int]
    blocks: View


class Beams(NamedTuple):
    """The live beams behind a step of a search, best first."""

    live: list[dict[str, Any]]
    copies: list[BlockPair]
    blocks: View


class Speaker:
    """The model, its memory, and the words that each block holds."""

    def __init__(self) -> None:
        self.model = model()
        self.blocks = Blocks(BLOCK_SIZE, NUM_BLOCKS, watermark=0.0)
        self.memory = BlockMemory(num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE)
        self.holds: list[list[str]] = [[""] * BLOCK_SIZE for _ in range(NUM_BLOCKS)]

    def compute(self, seq_id: int, token_ids: SequenceOf[int], start: int) -> Vector:
        """Logits behind the last of these tokens, whose blocks have been taken."""
        table = self.blocks.block_table(seq_id)
        for position, token in enumerate(token_ids, start):
            block, slot = table[position // BLOCK_SIZE], position % BLOCK_SIZE
            self.holds[block][slot] = self.model.words[token]
        return self.model.logits(self.model.forward(token_ids, start, table, self.memory))

    def copy(self, pairs: SequenceOf[BlockPair]) -> None:
        self.memory.copy(pairs)
        contents = [list(self.holds[source]) for source, _ in pairs]
        for (_, destination), content in zip(pairs, contents, strict=True):
            self.holds[destination] = content

    def poison(self, block: int) -> None:
        self.memory.fill(block, POISON)
        self.holds[block] = ["☠"] * BLOCK_SIZE

    def happen(self, event: str, seq_id: int) -> list[int]:
        """Makes an event of `EVENTS` happen; returns the blocks that it is about."""
        logical = len(self.blocks.block_table(seq_id)) // 2
        if event == "poison":
            touched = list(self.blocks.gpu.free_blocks)
        elif event == "move":
            pair = self.blocks.move(seq_id, logical)
            self.copy([pair])
            touched = [pair[0]]
        else:
            touched = [self.blocks.free_early(seq_id, logical)]
        for block in touched:
            self.poison(block)
        return touched

    def view(self) -> View:
        """Each block's words and how many tables the oracle thinks hold it."""
        counts = self.blocks.gpu.ref_counts
        return [(refs, *words) for words, refs in zip(self.holds, counts, strict=True)]


def speak(asked: dict[str, Any]) -> dict[str, Any]:
    """What the request says: {prompt, words, event, at} -> its steps, or {error}.

    `event` happens before the word number `at`, counted from 0. `differ` counts the words whose
    logits are not, bit for bit, those of the same request left alone. `changed` has the blocks that
    a step has changed: (its tables, its words).
    """
    try:
        prompt, count = _checked(asked)
    except ValueError as error:
        return {"error": str(error)}
    event = asked.get("event", "")
    at = min(max(int(asked.get("at", 0)), 1), count - 1)
    alone, _ = _run(prompt, count, "", 0)
    steps, touched = _run(prompt, count, event, at)
    pairs = list(zip(steps, alone, strict=True))
    apart = [max(abs(a - b) for a, b in zip(x.logits, y.logits, strict=True)) for x, y in pairs]
    words = model().words
    return {
        "prompt": [words[token] for token in prompt],
        "alone": [words[one.token] for one in alone],
        "steps": [
            {
                "word": words[one.token],
                "best": _best(one.logits),
                "table": one.table,
                "changed": changed,
                "apart": gap,
            }
            for one, gap, changed in zip(steps, apart, _changes(steps), strict=True)
        ],
        "at": at,
        "differ": sum(one.logits != other.logits for one, other in pairs),
        "says": EVENTS[event].format(at=at + 1, blocks=", ".join(map(str, touched))),
    }


def _changes(steps: SequenceOf[Step | Beams]) -> list[dict[int, Any]]:
    """The blocks that are not as they were behind the step before."""
    before: View = [()] * NUM_BLOCKS
    changes = []
    for one in steps:
        pairs = enumerate(zip(one.blocks, before, strict=True))
        changes.append({block: now for block, (now, was) in pairs if now != was})
        before = one.blocks
    return changes


@lru_cache(8)
def _run(prompt: tuple[int, ...], count: int, event: str, at: int) -> tuple[list[Step], list[int]]:
    """So many words, the most probable ones, and the blocks that the event was about."""
    speaker, touched = Speaker(), list[int]()
    _earlier(speaker)
    tokens, start, steps = list(prompt), 0, list[Step]()
    for number in range(count):
        if event and number == at:
            touched = speaker.happen(event, 1)
        taken = speaker.blocks.allocate_slots(1, tokens, start, len(tokens))
        assert taken == [], "one sequence shares no block, and the pool is large enough"
        logits = speaker.compute(1, tokens[start:], start)
        start = len(tokens)
        tokens.append(logits.index(max(logits)))
        table = speaker.blocks.block_table(1)
        steps.append(Step(tokens[-1], logits, table, speaker.view()))
    return steps, touched


def _earlier(speaker: Speaker) -> None:
    tokens = speaker.model.token_ids(EARLIER)
    speaker.blocks.allocate_slots(0, tokens, 0, len(tokens))
    speaker.compute(0, tokens, 0)
    speaker.blocks.free(0)


def search(asked: dict[str, Any]) -> dict[str, Any]:
    """A beam search to the end of a sentence: {prompt, words, beams} -> its steps, or {error}.

    Scores are sums of log-probabilities over the words of an output; a hypothesis's is divided by
    their number (`reference.beam_search`).
    """
    try:
        prompt, count = _checked(asked)
        width = int(asked["beams"])
        if not 2 <= width <= 4:
            raise ValueError(f"beams must be a whole number from 2 to 4, got {width}")
    except ValueError as error:
        return {"error": str(error)}
    speaker = Speaker()
    params: Any = SimpleNamespace(
        n=width, best_of=None, max_tokens=count, min_tokens=0, ignore_eos=False,
        stop_token_ids=[speaker.model.words.index(END)], use_beam_search=True, length_penalty=1.0,
        early_stopping=False,
    )  # fmt: skip
    group = SequenceGroup("A", list(prompt), params)
    scheduler = Scheduler(
        speaker.blocks, max_num_seqs=8, max_num_batched_tokens=64, max_model_len=MOST_TOKENS
    )
    try:
        scheduler.add_group(group)
    except AdmissionError as error:
        return {"error": str(error)}
    steps = list[Beams]()
    while scheduler.has_unfinished():
        copies = _searched(speaker, scheduler)
        steps.append(Beams(_live(speaker, group), copies, speaker.view()))
    return {
        "prompt": _words(prompt),
        "steps": [
            {"beams": one.live, "copies": one.copies, "changed": changed}
            for one, changed in zip(steps, _changes(steps), strict=True)
        ],
        "ended": [
            {"words": _words(seq.output_token_ids), "score": seq.score} for seq in group.best
        ],
    }


def _searched(speaker: Speaker, scheduler: Scheduler) -> list[BlockPair]:
    """One step; returns the copies on write."""
    output = scheduler.schedule()
    speaker.copy(output.blocks_to_copy)
    drawn = {}
    for entry in output.scheduled:
        logits = speaker.compute(entry.seq.seq_id, entry.token_ids, entry.start)
        ranked = sorted(enumerate(log_softmax(logits)), key=lambda pair: (-pair[1], pair[0]))
        drawn[entry.seq.seq_id] = ranked[: num_candidates(entry.group)]
    scheduler.update(drawn)
    return output.blocks_to_copy


def _live(speaker: Speaker, group: SequenceGroup) -> list[dict[str, Any]]:
    table = speaker.blocks.block_table
    return [
        {
            "words": _words(seq.output_token_ids),
            "score": seq.cumulative_logprob,
            "table": table(seq.seq_id),
        }
        for seq in group.unfinished
    ]


def _checked(asked: dict[str, Any]) -> tuple[tuple[int, ...], int]:
    """The prompt's tokens, and how many words are wanted."""
    prompt, count = tuple(model().token_ids(str(asked["prompt"]).lower())), int(asked["words"])
    if not prompt:
        raise ValueError("the prompt must have a word")
    if not 2 <= count <= MOST_WORDS:
        raise ValueError(f"words must be a whole number from 2 to {MOST_WORDS}, got {count}")
    if len(prompt) + count > MOST_TOKENS:
        raise ValueError(
            f"prompt and words must be at most {MOST_TOKENS} together, got {len(prompt) + count}"
        )
    return prompt, count


def _best(logits: Vector) -> list[tuple[str, float]]:
    """The three most probable words, with their log-probabilities."""
    ranked = sorted(enumerate(log_softmax(logits)), key=lambda pair: -pair[1])
    return [(model().words[token], logprob) for token, logprob in ranked[:3]]


def _words(token_ids: SequenceOf[int]) -> list[str]:
    return [model().words[token] for token in token_ids]


@cache
def model() -> TinyLlama:
    return TinyLlama()
