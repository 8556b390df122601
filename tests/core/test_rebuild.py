"""§4.5, a recomputed group of several sequences: the leader first, then the others beside it."""

import pytest

from jax_engine.core import Scheduler, SequenceGroup
from tests.core.build import make_group, make_scheduler, occupy, step, tokens_for


def recomputed(scheduling: str, **changes: int) -> tuple[Scheduler, SequenceGroup]:
    """A forked group that waits to be rebuilt, behind two others that run."""
    scheduler = make_scheduler(
        12, scheduling=scheduling, preemption_mode="recompute", **{"max_model_len": 16, **changes}
    )
    for i in range(3):
        scheduler.add_group(make_group(f"r{i}", 4, n=2, max_tokens=6))
    while not scheduler.num_preemptions["recompute"]:
        assert step(scheduler).scheduled
    return scheduler, scheduler.waiting[0]


@pytest.mark.parametrize("scheduling", ["sosp", "sosp-mixed"])
def test_in_the_sosp_modes_nothing_runs_beside_a_rebuild(scheduling: str) -> None:
    scheduler, group = recomputed(scheduling)
    scheduler.abort("r0")
    if scheduling == "sosp":  # admitted prompts are company too
        scheduler.abort("r1")
        scheduler.add_group(make_group("older", 2, max_tokens=1, arrival=-1.0))
    items = step(scheduler).scheduled
    assert items and group not in {item.group for item in items}
    scheduler.abort("r1")
    items = step(scheduler).scheduled
    lengths = [len(seq.token_ids) for seq in group.seqs]
    # The leader from its first token, its sibling from behind the shared prompt (2 blocks of 2)
    assert [(item.seq, item.start, item.num_samples) for item in items] == [
        (group.seqs[0], 0, 1),
        (group.seqs[1], 4, 1),
    ]
    assert [item.start + item.num_tokens + 1 for item in items] == lengths


@pytest.mark.parametrize("scheduling", ["sosp", "sosp-mixed"])
def test_a_rebuild_goes_on_in_the_next_step_when_the_budget_ends(scheduling: str) -> None:
    scheduler, group = recomputed(scheduling, max_num_batched_tokens=16)
    for seq in group.seqs:  # longer than they grew: 11 tokens, 7 of them not shared
        seq.token_ids += [7] * (11 - len(seq.token_ids))
    group.stop = type(group.stop)(16, 0, frozenset(), frozenset())
    scheduler.abort("r0")
    scheduler.abort("r1")
    first = step(scheduler).scheduled
    for name in ("ends", "waits"):
        scheduler.add_group(make_group(name, 2))
    scheduler.abort("ends")
    second = step(scheduler).scheduled
    scheduler.abort("waits")
    third = step(scheduler).scheduled
    assert [(item.start, item.num_tokens) for item in first] == [(0, 11)]
    assert [(item.start, item.num_tokens) for item in second] == [(4, 7)]
    assert [item.num_tokens for item in third] == [1, 1]


@pytest.mark.parametrize("scheduling", ["sosp", "sosp-mixed"])
@pytest.mark.parametrize(
    ("steps", "planned"),
    [(2, [[6, 2, 2, 2, 2, 2], [2]]), (5, [[9, 5], [5, 5, 5], [5, 5]])],
)
def test_a_rebuild_uses_the_whole_budget(
    scheduling: str, steps: int, planned: list[list[int]]
) -> None:
    """6 tokens of the leader and 2 of each sibling: 5 of the 6 siblings fit exactly."""
    scheduler = make_scheduler(
        40, scheduling=scheduling, max_model_len=16, max_num_batched_tokens=16
    )
    group = make_group("a", 4, n=7)
    scheduler.add_group(group)
    for _ in range(steps):
        step(scheduler)
    scheduler.recompute_all()
    for tokens in (*planned, [1] * 7):
        assert [one.num_tokens for one in step(scheduler).scheduled] == tokens


@pytest.mark.parametrize("scheduling", ["sosp", "sosp-mixed"])
def test_a_rebuild_needs_the_shared_blocks_once(scheduling: str) -> None:
    scheduler, group = recomputed(scheduling)
    scheduler.abort("r0")
    scheduler.abort("r1")
    shared = 2  # the prompt's
    need = shared + sum(-(-len(seq.token_ids) // 2) - shared for seq in group.seqs)
    blocks = scheduler.block_manager
    occupy(blocks, blocks.num_gpu_blocks - need + 1)
    assert not step(scheduler).scheduled
    occupy(blocks, blocks.num_gpu_blocks - need)
    assert len(step(scheduler).scheduled) == len(group.seqs)
    assert blocks.num_free_gpu_blocks == 0


@pytest.mark.parametrize("scheduling", ["sosp", "sosp-mixed"])
def test_i17_after_a_rebuild_others_are_admitted_again(scheduling: str) -> None:
    scheduler, group = recomputed(scheduling)
    scheduler.abort("r0")
    scheduler.abort("r1")
    step(scheduler)
    newcomer = make_group("new", 2, max_tokens=1)
    scheduler.add_group(newcomer)
    items = step(scheduler).scheduled
    company = [seq for seq in group.seqs if scheduling == "sosp-mixed"]
    assert [item.seq for item in items] == [*company, newcomer.seqs[0]]


@pytest.mark.parametrize("chunk", [2, 3])  # the second chunk ends with the prompt, or behind it
def test_unified_siblings_attach_once_the_prompt_is_there(chunk: int) -> None:
    scheduler, group = recomputed("unified", long_prefill_token_threshold=chunk)
    scheduler.abort("r0")
    scheduler.abort("r1")
    leader, sibling = group.seqs
    assert [item.seq for item in step(scheduler).scheduled] == [leader]
    assert (leader.num_computed_tokens, sibling.attached) == (chunk, False)
    step(scheduler)
    assert sibling.attached and sibling.num_computed_tokens == 4
    blocks = scheduler.block_manager
    assert blocks.block_table(sibling.seq_id) == blocks.block_table(leader.seq_id)[:2]
    assert {item.seq for item in step(scheduler).scheduled} == {leader, sibling}


@pytest.mark.parametrize("prompt", [4, 6, 7])
def test_unified_siblings_attach_with_the_last_full_block_of_the_prompt(prompt: int) -> None:
    scheduler = make_scheduler(24, long_prefill_token_threshold=1)
    group = make_group("a", prompt, n=2)
    scheduler.add_group(group)
    while not group.forked:
        step(scheduler)
    scheduler.recompute_all()
    leader, sibling = group.seqs
    while leader.output_len < 3:
        assert sibling.attached == (leader.num_computed_tokens >= prompt // 2 * 2)
        step(scheduler)


@pytest.mark.parametrize("scheduling", ["sosp", "sosp-mixed"])
def test_i6_a_part_that_ends_while_it_is_rebuilt_leaves_nothing_to_rebuild(scheduling: str) -> None:
    """The next part waits for its own blocks: it has none when the step after is planned."""
    scheduler = make_scheduler(
        6, block_size=1, max_model_len=4, scheduling=scheduling, preemption_mode="recompute"
    )
    scheduler.add_group(make_group("older", 2, max_tokens=2))
    scheduler.add_group(make_group("parts", 2, n=3, max_tokens=2))
    while scheduler.has_unfinished():
        output = scheduler.schedule()
        for item in output.scheduled:
            table = scheduler.block_manager.block_table(item.seq.seq_id)
            assert item.start + item.num_tokens <= len(table)
        scheduler.update(tokens_for(output))
    assert scheduler.num_preemptions["recompute"]


@pytest.mark.parametrize("scheduling", ["unified", "sosp", "sosp-mixed"])
def test_siblings_share_all_full_blocks_of_a_long_prompt(scheduling: str) -> None:
    """4 blocks of 2 tokens; the odd one is each sequence's own."""
    scheduler = make_scheduler(
        24, scheduling=scheduling, preemption_mode="recompute", max_num_batched_tokens=64
    )
    group = make_group("a", 9, n=3, max_tokens=6)
    scheduler.add_group(group)
    for _ in range(3):
        step(scheduler)
    scheduler.recompute_all()
    assert [seq.attached for seq in group.seqs] == [True, False, False]
    starts = [{one.seq.index: one.start for one in step(scheduler).scheduled} for _ in range(2)]
    merged = starts[1] | starts[0]
    assert (merged[0], merged[1], merged[2]) == (0, 8, 8)
    tables = [scheduler.block_manager.block_table(seq.seq_id) for seq in group.seqs]
    assert tables[0][:4] == tables[1][:4] == tables[2][:4]
    assert len({table[4] for table in tables}) == 3


@pytest.mark.parametrize("ended", [0, 1])
def test_of_four_the_next_one_leads(ended: int) -> None:
    scheduler = make_scheduler(
        24, preemption_mode="recompute", max_num_batched_tokens=5, max_num_seqs=4
    )
    group = make_group("a", 9, n=4, max_tokens=6)
    scheduler.add_group(group)
    for _ in range(5):
        step(scheduler)
    scheduler.recompute_all()
    step(scheduler)
    scheduler.finish_sequence(group.seqs[ended], group, "stop")
    left = [seq for seq in group.seqs if seq.finish_reason is None]
    assert group.leader is left[0] and group.attached() == left[:1]
    assert group.num_unattached == 2
    step(scheduler)
    step(scheduler)
    assert group.attached() == left and group.num_unattached == 0


def test_i52_who_is_computed_again_reads_no_blocks_that_another_generated() -> None:
    """The first time they were as good as any: now the bits must be those it had."""
    scheduler = make_scheduler(caching=True)
    first = make_group("first", 4, max_tokens=5)
    scheduler.add_group(first)
    while scheduler.has_unfinished():
        step(scheduler)
    second = make_group("second", [*first.seqs[0].token_ids, 5])
    scheduler.add_group(second)
    assert [item.start for item in step(scheduler).scheduled] == [8]
    scheduler.recompute_all()
    assert [item.start for item in step(scheduler).scheduled] == [4]
    assert second.num_cached_tokens == 8, "when it was first admitted"


def test_siblings_have_the_prompt_as_soon_as_the_leader_finds_it_in_the_cache() -> None:
    """All have its blocks when the step is planned, and go on together in the next one."""
    scheduler = make_scheduler(caching=True, max_num_batched_tokens=4, max_num_seqs=2)
    group = make_group("a", 4, n=2)
    scheduler.add_group(group)
    for _ in range(3):
        step(scheduler)
    leader, sibling = group.seqs
    scheduler.recompute_all()
    assert scheduler.block_manager.num_logical_blocks == 0
    output = scheduler.schedule()
    assert [(item.seq, item.start) for item in output.scheduled] == [(leader, 6)]
    tables = scheduler.block_manager.tables
    assert tables[sibling.seq_id].ids == tables[leader.seq_id].ids[:2]
    assert sibling.attached and sibling.num_computed_tokens == 4
    scheduler.update(tokens_for(output))
    assert {item.seq for item in step(scheduler).scheduled} == {leader, sibling}
