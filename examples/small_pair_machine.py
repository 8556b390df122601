"""Two block managers, one random program: a pair machine small enough to read in one go.

The tutorial (docs/tutorial/the-oracle.md) turns it loose on planted bugs. The real machines are in
tests/properties/.
"""

import random
from collections.abc import Callable
from typing import Any

BLOCK_SIZE, NUM_BLOCKS = 2, 6
OPERATIONS = ("decode", "fork", "free")


def operation(what: str, seq: int, new: int, tokens: list[int]) -> Callable[[Any], Any]:
    """One operation of a program, to be called with a block manager."""

    def open_prompt(manager: Any) -> Any:
        hits = manager.cached_blocks(tokens)
        start = BLOCK_SIZE * len(hits)
        return hits, manager.allocate_slots(new, tokens, start, len(tokens), cached=hits)

    def decode(manager: Any) -> Any:
        return manager.allocate_slots(seq, tokens, len(tokens) - 1, len(tokens))

    return {
        "open": open_prompt,
        "decode": decode,
        "fork": lambda manager: manager.fork(seq, new),
        "free": lambda manager: manager.free(seq),
    }[what]


def seen(manager: Any, seqs: list[int]) -> Any:
    """What can be seen of a block manager from outside."""
    refs = [manager.ref_count(block) for block in range(NUM_BLOCKS)]
    tables = [manager.block_table(seq) for seq in seqs]
    return tables, refs, manager.num_free_gpu_blocks, manager.num_cached_blocks


def outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    """What a call returns, or the name of what it raises."""
    try:
        return call(*arguments)
    except Exception as error:
        return type(error).__name__


def differ(classes: tuple[type, type], length: int, seed: int) -> list[str] | None:
    """A random program of at most `length` operations after which the two differ, or None."""
    rng = random.Random(seed)
    pair = [cls(BLOCK_SIZE, NUM_BLOCKS, enable_prefix_caching=True) for cls in classes]
    tokens: dict[int, list[int]] = {}
    program = []
    for new in range(length):
        seq = rng.choice([*tokens, -1])
        what = rng.choice(OPERATIONS) if seq in tokens else "open"
        program.append(f"{what} {new if seq < 0 else seq}")
        if what == "open":
            tokens[new] = [rng.randrange(2) for _ in range(rng.randint(1, 5))]
        elif what == "decode":
            tokens[seq] = [*tokens[seq], rng.randrange(2)]
        elif what == "fork":
            tokens[new] = tokens[seq]
        text = tokens.pop(seq) if what == "free" else tokens[new if what == "open" else seq]
        call = operation(what, seq, new, text)
        results = [outcome(call, manager) for manager in pair]
        states = [outcome(seen, manager, list(tokens)) for manager in pair]
        if results[0] != results[1] or states[0] != states[1]:
            return program
        full = results[0] is None if what == "decode" else what == "open" and results[0][1] is None
        if full:  # no room, on both sides: the program ends here
            return None
    return None


def first_difference(classes: tuple[type, type]) -> str:
    """The shortest program found, as text; short ones are tried first."""
    for length in range(1, 9):
        for seed in range(250):
            if program := differ(classes, length, seed):
                return "; ".join(program)
    return "not noticed by this small machine"
