"""Answers with the numbers of variant 0 written down in them: right there, and in no other."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from exercises import admission as admission_task
from exercises.crossing_hits import Adapter
from exercises.solutions import (
    admission,
    allocator,
    beams,
    chunks,
    copy_on_write,
    crossing_hits,
    eviction,
    grouped_product,
    hanging_scheduler,
    online_softmax,
    prefix_chain,
    swapping,
    top_p,
    unified_step,
    verification,
)
from exercises.unified_step import State


class ThreeBlocks(allocator.Allocator):
    def __init__(self, num_blocks: int) -> None:
        super().__init__(3)


class FourBlocks(eviction.Cache):
    def __init__(self, num_blocks: int) -> None:
        super().__init__(4)


class OfFourTokens(hanging_scheduler.Scheduler):
    def accepts(self, request: Any) -> bool:
        return -(-(request.prompt + request.max_tokens - 1) // 4) + 1 <= self.num_blocks


def append_in_fours(pool: Any, table: list[int], position: int, word: str) -> None:
    given, pool.block_size = pool.block_size, 4
    try:
        copy_on_write.append(pool, table, position, word)
    finally:
        pool.block_size = given


def attend_in_four_dimensions(q: np.ndarray, blocks: Iterator[Any]) -> Any:
    return online_softmax.attend(np.resize(q, 4), blocks)


def chain_in_fours(tokens: Sequence[int], block_size: int) -> list[int]:
    return prefix_chain.chain(tokens, 4)


def keep_of_four(probabilities: Sequence[float], p: float) -> list[int]:
    return top_p.keep_top_p(probabilities[:4], p)


def accept_to_zero(guesses: Sequence[int], drawn: Sequence[int], end: int) -> list[int]:
    return verification.accept(guesses, drawn, 0)


def add_three_slots(y: Any, x: Any, slots: np.ndarray, read: Any) -> Any:
    return grouped_product.add_adapters(y, x, np.where(slots > 3, 0, slots), read)


def root_of_known_weights(adapter: Adapter | None, salt: str | None) -> Any:
    known = {(1.0, 2.0): "one", (3.0, 4.0): "two", (1.0, 2.5): "three"}
    if adapter is None:
        return crossing_hits.root(None, salt)
    return (salt, known[adapter.weights], adapter.scaling)


def plan_sixteen(state: State) -> dict[str, int]:
    state.budget = 16
    return unified_step.plan(state)


def move_two(source: Any, target: Any, tables: Any) -> Any:
    return swapping.move(source, target, tables[:2])


def select_four(scores: Any, candidates: Any, k: int) -> Any:
    return beams.select(scores, candidates, 4)


def decide_above_one(request: Any, pool: admission_task.Pool, free: int) -> str:
    return admission.decide(request, pool._replace(watermark=1), free)


def slots_in_fours(chunk: Any, table: Sequence[int], block_size: int) -> list[int]:
    return chunks.slots(chunk, table, 4)


HARD_CODED: dict[str, Any] = {
    "admission": (admission.most_blocks, decide_above_one),
    "allocator": ThreeBlocks,
    "beams": (select_four, beams.advance),
    "chunks": (chunks.cut, slots_in_fours),
    "copy_on_write": (copy_on_write.fork, append_in_fours),
    "crossing_hits": root_of_known_weights,
    "eviction": FourBlocks,
    "grouped_product": add_three_slots,
    "hanging_scheduler": OfFourTokens,
    "online_softmax": attend_in_four_dimensions,
    "prefix_chain": (chain_in_fours, prefix_chain.num_known),
    "swapping": (move_two, swapping.begin_step),
    "top_p": keep_of_four,
    "unified_step": plan_sixteen,
    "verification": accept_to_zero,
}
