"""The block map beside the block manager's own tables, through all that moves blocks."""

from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine.core import BlockManager, Scheduler, SequenceGroup
from jax_engine.engine.engine_state import MAX_OWNERS, MAX_WAITING, BlockMap, Cells, block_map
from jax_engine.errors import JaxEngineError
from tests.core.build import make_group, make_scheduler, step, tokens_for
from tests.support.drive import Driver
from tests.support.strategies import requests, settings


def holders(scheduler: Any, found: BlockMap, device: str) -> list[list[tuple[int, int]]]:
    """For each block: the requests that hold it, and how many of its tokens they have computed."""
    blocks = scheduler.block_manager
    numbers = {one.request_id: i for i, one in enumerate(found.requests)}
    pool = blocks.gpu if device == "gpu" else blocks.cpu
    held: list[list[tuple[int, int]]] = [[] for _ in range(pool.num_blocks)]
    for group in scheduler.groups.values():
        for seq in group.seqs:
            if blocks.device(seq.seq_id) == device:
                for i, block in enumerate(blocks.block_table(seq.seq_id)):
                    tokens = range(i * blocks.block_size, (i + 1) * blocks.block_size)
                    computed = sum(one < seq.num_computed_tokens for one in tokens)
                    held[block].append((numbers[group.request_id], computed))
    return held


def check_cells(cells: Cells, held: list[list[tuple[int, int]]], cached: set[int]) -> None:
    """Each cell is the sum of its blocks, counted one by one."""
    used = {block for block, who in enumerate(held) if who}
    assert (cells.num_used, cells.num_cached) == (len(used), len(cached))
    assert cells.num_shared == sum(len(who) > 1 for who in held)
    assert cells.span == max(used | cached, default=-1) + 1
    shown = {one.number: one for one in cells.cells}
    assert list(shown) == sorted(shown) and len(shown) == len(cells.cells)
    for index in range(-(-cells.num_blocks // cells.per_cell)):
        first = index * cells.per_cell
        mine = range(first, min(first + cells.per_cell, cells.num_blocks))
        if not (used | cached) & {*mine}:
            assert index not in shown
            continue
        cell = shown[index]
        owners = sorted({owner for block in mine for owner, _ in held[block]})
        assert cell.used == sum(block in used for block in mine)
        assert cell.shared == sum(len(held[block]) > 1 for block in mine)
        assert cell.references == sum(len(held[block]) for block in mine)
        assert cell.tokens == sum(
            max((tokens for _, tokens in held[block]), default=0) for block in mine
        )
        assert cell.cached == sum(block in cached - used for block in mine)
        assert (cell.num_owners, cell.owners) == (len(owners), owners[:MAX_OWNERS])


def check_map(scheduler: Any, max_cells: int = 1024) -> BlockMap:
    """The map says what block tables, reference counts and queues say."""
    found, blocks = block_map(scheduler, max_cells), scheduler.block_manager
    queues = {"running": scheduler.running, "swapped": scheduler.swapped}
    queues["waiting"] = scheduler.waiting[:MAX_WAITING]
    listed = [(name, group) for name, groups in queues.items() for group in groups]
    assert [(one.queue, one.request_id) for one in found.requests] == [
        (name, group.request_id) for name, group in listed
    ]
    assert found.num_waiting == len(scheduler.waiting)
    cached = {block for block in range(blocks.num_gpu_blocks) if block in blocks._cache._nodes}
    check_cells(found.device, holders(scheduler, found, "gpu"), cached)
    check_cells(found.host, holders(scheduler, found, "cpu"), set())
    assert found.device.num_used == blocks.num_used_gpu_blocks
    assert found.device.num_shared == blocks.num_shared_blocks
    for view, (_, group) in zip(found.requests, listed, strict=True):
        tables = [blocks.block_table(seq.seq_id) for seq in group.unfinished()]
        assert view.num_blocks == len({block for table in tables for block in table})
        assert view.output_len == sum(len(seq.output_token_ids) for seq in group.unfinished())
        assert 0 <= view.num_computed <= view.prompt_len == group.prompt_len
    return found


def test_an_empty_engine_is_an_empty_map() -> None:
    found = check_map(make_scheduler(8, 0))
    assert found.requests == [] and found.device.cells == [] == found.host.cells
    assert (found.device.num_blocks, found.device.per_cell, found.device.span) == (8, 1, 0)


def test_samples_share_their_prompt() -> None:
    scheduler = make_scheduler(32)
    scheduler.add_group(make_group("a", 3, n=2))
    step(scheduler)
    [last, first] = check_map(scheduler).device.cells  # the block freed last is taken first
    assert first[1:] == (1, 1, 2, 2, 0, 1, [0])  # one block, in two tables of one request
    assert last[1:] == (1, 1, 2, 1, 0, 1, [0])  # half full
    step(scheduler)  # each sample writes: one of them into a copy
    assert [one.shared for one in check_map(scheduler).device.cells] == [0, 0, 1]


def test_a_prefix_is_shared_between_requests_and_stays_when_they_end() -> None:
    scheduler = make_scheduler(64, caching=True)
    for name in "abc":
        scheduler.add_group(make_group(name, [1, 2, 3, 4, ord(name)], max_tokens=6))
        step(scheduler)
    found = check_map(scheduler)
    assert max(one.num_owners for one in found.device.cells) == 3
    assert [one.num_cached for one in found.requests] == [0, 4, 4]
    while scheduler.has_unfinished():
        step(scheduler)
    left = check_map(scheduler).device
    assert (left.num_used, left.num_cached) == (0, sum(one.cached for one in left.cells))
    assert left.num_cached >= 2


def test_swapped_requests_are_in_the_host_s_cells() -> None:
    scheduler = make_scheduler(9, preemption_mode="swap")
    for name in "ab":
        scheduler.add_group(make_group(name, 4, max_tokens=8))
    while not scheduler.swapped:
        step(scheduler)
    found = check_map(scheduler)
    assert [one.queue for one in found.requests] == ["running", "swapped"]
    assert {one.owners[0] for one in found.host.cells} == {1}
    assert found.host.num_used == found.requests[1].num_blocks > 0


def test_only_the_first_waiting_requests_are_listed() -> None:
    scheduler = make_scheduler(8)
    for i in range(MAX_WAITING + 3):
        scheduler.add_group(make_group(str(i)))
    found = check_map(scheduler)
    assert (len(found.requests), found.num_waiting) == (MAX_WAITING, MAX_WAITING + 3)
    assert {(one.num_computed, one.num_cached, one.num_blocks) for one in found.requests} == {
        (0, 0, 0)
    }


def test_of_a_request_that_is_computed_again_the_leader_counts() -> None:
    """Its sibling has nothing until the prompt is there."""
    scheduler = make_scheduler(max_num_batched_tokens=4)
    scheduler.add_group(make_group("a", 6, n=2))
    for _ in range(3):
        step(scheduler)
    scheduler.recompute_all()
    step(scheduler)
    assert [seq.num_computed_tokens for seq in scheduler.groups["a"].seqs] == [4, 0]
    assert check_map(scheduler).requests[0].num_computed == 4


def test_a_step_that_is_planned_has_computed_nothing() -> None:
    """Its blocks are taken, and empty."""
    scheduler = make_scheduler()
    scheduler.add_group(make_group("a", 5))
    out = scheduler.schedule()
    assert [(one.used, one.tokens) for one in check_map(scheduler).device.cells] == [(1, 0)] * 3
    scheduler.update(tokens_for(out))
    assert sorted(one.tokens for one in check_map(scheduler).device.cells) == [1, 2, 2]


def test_a_large_pool_is_shown_in_cells_of_several_blocks() -> None:
    scheduler = make_scheduler(64)
    for name in "abcd":
        scheduler.add_group(make_group(name, 12))
    step(scheduler)
    assert check_map(scheduler, max_cells=8).device.per_cell > 1


@pytest.mark.parametrize("scheduling", ["unified", "sosp"])
def test_the_map_is_what_the_tables_say(scheduling: str) -> None:
    @given(st.data())
    def run(data: st.DataObject) -> None:
        chosen = data.draw(settings(scheduling))
        blocks = chosen.block_manager(BlockManager)
        scheduler = Scheduler(blocks, **chosen.scheduler_arguments)
        driver, names = Driver(scheduler, blocks, chosen), count()
        max_cells = data.draw(st.sampled_from([3, 1024]))
        for _ in range(data.draw(st.integers(1, 12))):
            if data.draw(st.booleans()):
                request = data.draw(requests(chosen.max_model_len, beams=True))
                try:
                    driver.add(request.group(SequenceGroup, str(next(names))), request)
                except JaxEngineError:
                    continue
            driver.step()
            check_map(scheduler, max_cells)

    run()
