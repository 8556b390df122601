"""Prefix-cache lookup against the length of the prompt."""

import gc
import time
from collections.abc import Callable
from functools import partial
from statistics import median

from benchmarks.curves.curve import Curve, Series
from jax_engine.core import BlockManager

LENGTHS = tuple(2**i for i in range(7, 18))  # 128 to 131,072 tokens
SMOKE = (128, 256, 512)
BLOCK_SIZE = 16
REPEATS = 15


def lookup(smoke: bool) -> Curve:
    """A hit of the whole prompt, the same once its blocks are hashed, and a miss."""
    names = ("whole prompt cached", "asked again", "nothing cached")
    lines = {name: Series("O(n)") for name in names}
    calls = {length: _calls(length) for length in (SMOKE if smoke else LENGTHS)}
    seconds: dict[tuple[str, int], list[float]] = {}
    gc.collect()
    for _ in range(REPEATS):  # taking turns: the machine's mood is the same for all
        for length, of_length in calls.items():
            for name, call in zip(names, of_length, strict=True):
                started = time.perf_counter()
                call()
                seconds.setdefault((name, length), []).append(time.perf_counter() - started)
    for (name, length), found in seconds.items():
        lines[name].points[length] = 1e6 * median(found)
    return Curve(
        "Prefix-cache lookup",
        "tokens of the prompt",
        "microseconds",
        f"Blocks of {BLOCK_SIZE} tokens; asked again reuses the first lookup's hashes. "
        f"Medians of {REPEATS}; the lengths take turns.",
        lines,
    )


def _calls(length: int) -> list[Callable[[], object]]:
    """The three lookups, in a cache that holds that prompt and nothing else."""
    blocks = BlockManager(BLOCK_SIZE, length // BLOCK_SIZE + 8, enable_prefix_caching=True)
    prompt = list(range(1000, 1001 + length))
    blocks.allocate_slots(0, prompt, 0, len(prompt))
    blocks.free(0)
    stranger = prompt[::-1]
    chain: list = []  # the scheduler's memo of a waiting prompt
    assert len(blocks.cached_blocks(prompt, None, chain)) == length // BLOCK_SIZE
    assert not blocks.cached_blocks(stranger)
    return [
        partial(blocks.cached_blocks, prompt),
        partial(blocks.cached_blocks, prompt, None, chain),
        partial(blocks.cached_blocks, stranger),
    ]
