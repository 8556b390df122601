"""A scheduler with a store: what it loads, what it hands over, and that it waits for nobody."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jax_engine.core import BlockManager, Scheduler, SchedulerOutput, SequenceGroup
from jax_engine.core.block_store import Contents
from jax_engine.core.kv_events import BlocksStored
from jax_engine.core.prefix_cache import Node
from jax_engine.sampling_params import SamplingParams

B = 4


class Shelf:
    """A store in memory. Its answers are late as long as `is_late`.

    Attributes:
        waited: How often it was told to wait.
        used: What requests have begun with.
    """

    def __init__(self) -> None:
        self.kept: dict[Node, Any] = {}
        self.is_late = False
        self.waited = 0
        self.used: list[list[Node]] = []

    def find(self, nodes: Sequence[Node], *, waits: bool) -> Contents | None:
        if self.is_late and not waits:
            return None
        self.waited += self.is_late
        found: Contents = []
        for node in nodes:
            if node not in self.kept:
                break
            found.append(np.array([[self.kept[node]]]))
        return found

    def use(self, nodes: Sequence[Node]) -> None:
        self.used.append(list(nodes))


def build(shelf: Shelf | None = None, num_blocks: int = 40) -> tuple[Scheduler, Shelf]:
    blocks = BlockManager(B, num_blocks, enable_prefix_caching=True, watermark=0.0)
    shelf = Shelf() if shelf is None else shelf
    blocks.keep_in(shelf)
    limits: dict[str, int] = {
        "max_num_seqs": 4, "max_num_batched_tokens": 64, "max_model_len": 64,
    }  # fmt: skip
    return Scheduler(blocks, **limits), shelf


def add(
    scheduler: Scheduler, name: str, prompt: Sequence[int], max_tokens: int = 2
) -> SequenceGroup:
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    group = SequenceGroup(name, list(prompt), params)
    scheduler.add_group(group)
    return group


def step(scheduler: Scheduler) -> SchedulerOutput:
    out = scheduler.schedule()
    scheduler.update({one.seq.seq_id: [9] * one.num_samples for one in out.scheduled})
    return out


def finish(scheduler: Scheduler) -> None:
    while scheduler.has_unfinished():
        assert not step(scheduler).is_empty


def shelve(scheduler: Scheduler, shelf: Shelf) -> list[Node]:
    """Puts what the last steps have computed on the shelf."""
    taken = scheduler.block_manager.take_prompts()
    shelf.kept |= {node: block for node, block in taken}
    return [node for node, _ in taken]


def test_full_blocks_of_prompts_are_handed_over_once() -> None:
    scheduler, shelf = build()
    add(scheduler, "a", range(10), max_tokens=9)
    step(scheduler)
    nodes = shelve(scheduler, shelf)
    assert [node.tokens for node in nodes] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    finish(scheduler)
    assert shelve(scheduler, shelf) == []  # (8, 9, 9, 9) is the prompt's in part only
    add(scheduler, "b", range(10))
    finish(scheduler)
    assert shelve(scheduler, shelf) == []


def test_a_prompt_goes_on_behind_what_the_store_has() -> None:
    first, shelf = build()
    add(first, "a", range(14))
    finish(first)
    shelve(first, shelf)
    second, _ = build(shelf)
    events = second.block_manager.record_events()
    group = add(second, "b", range(14))
    out = step(second)
    assert [one.start for one in out.scheduled] == [12]
    ((blocks, contents),) = out.blocks_to_load
    assert blocks == second.block_manager.block_table(group.leader.seq_id)[:3]
    assert [int(one[0, 0]) for one in contents] == list(shelf.kept.values())
    assert (group.num_cached_tokens, group.num_loaded_tokens) == (12, 12)
    (told,) = events.take()
    assert isinstance(told, BlocksStored) and len(told.nodes) == 3
    assert shelve(second, shelf) == []  # the store has them
    assert [len(nodes) for nodes in shelf.used] == [0, 3]
    other = add(second, "c", range(14))
    assert step(second).blocks_to_load == []  # now they are in the prefix cache
    assert (other.num_cached_tokens, other.num_loaded_tokens) == (12, 0)
    finish(second)
    assert second.block_manager.num_used_gpu_blocks == 0


def test_behind_cached_blocks_the_store_is_asked_for_the_next() -> None:
    first, shelf = build()
    add(first, "a", range(18))
    finish(first)
    shelve(first, shelf)
    second, _ = build(shelf)
    add(second, "b", [*range(8), 30])
    shelf.kept, kept = {}, shelf.kept
    finish(second)
    shelf.kept = kept
    group = add(second, "c", range(18))
    out = step(second)
    assert [len(contents) for _, contents in out.blocks_to_load] == [2]
    assert (group.num_cached_tokens, group.num_loaded_tokens) == (16, 8)
    finish(second)


def test_while_others_run_a_late_answer_makes_one_wait_alone() -> None:
    first, shelf = build()
    add(first, "a", range(10))
    finish(first)
    shelve(first, shelf)
    second, _ = build(shelf)
    add(second, "running", [20, 21], max_tokens=5)
    step(second)
    shelf.is_late = True
    late = add(second, "late", range(10))
    for _ in range(2):
        assert [one.group.request_id for one in step(second).scheduled] == ["running"]
    assert late.num_cached_tokens is None and shelf.waited == 0
    shelf.is_late = False
    assert [one.group.request_id for one in step(second).scheduled] == ["running", "late"]
    assert late.num_loaded_tokens == 8
    finish(second)


def test_alone_it_waits_and_ahead_of_a_step_it_does_not() -> None:
    first, shelf = build()
    add(first, "a", range(10))
    finish(first)
    shelve(first, shelf)
    second, _ = build(shelf)
    shelf.is_late = True
    add(second, "b", range(10), max_tokens=1)
    assert [one.start for one in second.schedule().scheduled] == [8] and shelf.waited == 1
    assert second.can_advance()
    second.advance()
    add(second, "c", [*range(4), *range(20, 30)], max_tokens=1)
    assert second.schedule().is_empty and shelf.waited == 1
    second.clear()


def test_prompts_without_hits_and_failed_steps_leave_nothing() -> None:
    scheduler, shelf = build()
    group = SequenceGroup("a", list(range(10)), SamplingParams(max_tokens=1, prompt_logprobs=1))
    scheduler.add_group(group)
    step(scheduler)
    assert len(shelf.used) == 1 and group.num_loaded_tokens == 0
    scheduler.clear()
    assert scheduler.block_manager.take_prompts() == []


def test_contents_of_a_store_are_entered_into_free_blocks() -> None:
    """As many as there are; the last of them is evicted first; one that is there is not twice."""
    scheduler, _ = build(num_blocks=3)
    blocks = scheduler.block_manager
    nodes: list[tuple[Node, int]] = []
    for index in range(4):
        parent = nodes[-1][0] if nodes else None
        nodes.append((Node(parent, tuple(range(4 * index, 4 * index + 4)), None), index))
    events = blocks.record_events()
    entered = blocks.enter(nodes)
    assert [place for place, _ in entered] == [0, 1, 2] and blocks.num_free_gpu_blocks == 3
    assert [len(one.nodes) for one in events.take() if isinstance(one, BlocksStored)] == [1] * 3
    assert blocks.cached_blocks(list(range(13))) == [block for _, block in entered]
    assert blocks.gpu.next_blocks(3) == [block for _, block in reversed(entered)]
    again, _ = build(num_blocks=3)
    assert [place for place, _ in again.block_manager.enter([nodes[0], nodes[0], nodes[1]])] == [
        0,
        2,
    ]
    assert again.block_manager.num_cached_blocks == 2
    assert len(set(again.block_manager.gpu.next_blocks(3))) == 3
