"""Work does not depend on what it should not: counted in executed lines, never in seconds."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import jax_engine
from jax_engine.core import BlockManager
from tests.core.build import make_group, make_scheduler, step, tokens_for

OURS = str(Path(jax_engine.__file__).parent)


def lines_run(call: Callable[[], object]) -> int:
    """Lines of jax_engine executed by the call, in this thread.

    Others are not counted: the garbage collector may call back into JAX and Hypothesis meanwhile.
    """
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def life_of_a_sequence(blocks: BlockManager) -> None:
    tokens = list(range(40))
    blocks.allocate_slots(0, tokens, 0, 24, cached=blocks.cached_blocks(tokens[:24]))
    blocks.fork(0, 1)
    for length in range(25, 34):
        blocks.allocate_slots(0, tokens, length - 1, length)
    blocks.swap_out([0, 1])
    blocks.swap_in([1, 0])
    blocks.free(0)
    blocks.free(1)


@pytest.mark.parametrize("caching", [False, True])
def test_block_operations_do_not_depend_on_the_pool(caching: bool) -> None:
    small, large = (
        BlockManager(4, size, size, watermark=0.0, enable_prefix_caching=caching, table_width=16)
        for size in (32, 50_000)
    )
    assert lines_run(lambda: life_of_a_sequence(small)) == lines_run(
        lambda: life_of_a_sequence(large)
    )


@pytest.mark.parametrize("scheduling", ["unified", "sosp"])
def test_decoding_costs_the_same_however_long_the_context(scheduling: str) -> None:
    def lines(prompt: int) -> int:
        scheduler = make_scheduler(
            200,
            block_size=16,
            scheduling=scheduling,
            max_model_len=1000,
            max_num_batched_tokens=1000,
        )
        scheduler.add_group(make_group("a", prompt, max_tokens=20))
        step(scheduler)
        step(scheduler)  # the first decode takes the sequence's next block
        return lines_run(lambda: step(scheduler))

    assert lines(16) == lines(800)


@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize("swapped", [False, True])
def test_most_writes_of_a_token_cost_two_comparisons(caching: bool, swapped: bool) -> None:
    """Not where a block begins and, if its table is in the prefix cache, where one is full."""
    blocks = BlockManager(4, 8, 8, watermark=0.0, enable_prefix_caching=caching)
    tokens = list(range(12))
    blocks.allocate_slots(0, tokens, 0, 1)
    if swapped:
        blocks.swap_out([0])
        blocks.swap_in([0])
        blocks.allocate_slots(0, tokens, 0, 1)
    slow = []
    for end in range(2, 13):
        asked = lines_run(partial(blocks.blocks_needed, 0, end - 1, end))
        taken = lines_run(partial(blocks.allocate_slots, 0, tokens, end - 1, end))
        assert (asked > 4) == (taken > 4)
        slow += [end] * (asked > 4)
    assert slow == ([4, 5, 8, 9, 12] if caching and not swapped else [5, 9])


@pytest.mark.parametrize("scheduling", ["unified", "sosp"])
@pytest.mark.parametrize("ahead", [False, True])
def test_most_decodes_ask_the_block_manager_for_nothing(scheduling: str, ahead: bool) -> None:
    """Also those of a step that is planned while the one before it runs."""
    scheduler = make_scheduler(block_size=4, scheduling=scheduling)
    scheduler.add_group(make_group("a", 4, max_tokens=9))
    step(scheduler)
    allocate, ends = scheduler.block_manager.allocate_slots, []

    def counted(seq_id: int, tokens: list[int], start: int, end: int, **more: Any) -> Any:
        ends.append(end)
        return allocate(seq_id, tokens, start, end, **more)

    scheduler.block_manager.allocate_slots = counted  # type: ignore[method-assign,assignment]
    if ahead and scheduling == "unified":
        running = scheduler.schedule()
        for _ in range(7):
            scheduler.advance()
            following = scheduler.schedule()
            scheduler.update(tokens_for(running))
            running = following
    else:
        for _ in range(8):
            step(scheduler)
    assert ends == [5, 9]


def test_a_prompt_is_looked_up_in_time_linear_in_its_length() -> None:
    def lines(num_blocks: int) -> int:
        blocks = BlockManager(4, 1000, enable_prefix_caching=True)
        tokens = list(range(4 * num_blocks + 1))
        blocks.allocate_slots(0, tokens, 0, len(tokens))
        counts = [
            lines_run(lambda: blocks.cached_blocks(list(tokens))),
            # A second sequence that was computed beside the first finds its content registered.
            lines_run(lambda: blocks.allocate_slots(1, list(tokens), 0, len(tokens))),
        ]
        assert len(blocks.cached_blocks(tokens)) == num_blocks
        return sum(counts)

    assert lines(400) < 4.1 * lines(100)


@pytest.mark.parametrize("scheduling", ["unified", "sosp"])
def test_admitting_takes_time_linear_in_the_requests(scheduling: str) -> None:
    def lines(requests: int) -> int:
        scheduler = make_scheduler(
            1000, scheduling=scheduling, max_num_seqs=requests, max_num_batched_tokens=1000
        )
        for i in range(requests):
            scheduler.add_group(make_group(str(i), 1, arrival=i))
        found = lines_run(scheduler.schedule)
        assert len(scheduler.running) == requests
        return found

    assert lines(200) < 4.1 * lines(50)
