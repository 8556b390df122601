"""§4.4, beams over shared blocks: forks before frees, the barrier, places kept, ends, aborts."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine.core import Scheduler, SchedulerOutput, SequenceGroup
from jax_engine.core.admission import blocks_of_one
from jax_engine.core.sequence import NO_TOKEN
from tests.core.build import make_group, make_scheduler
from tests.support.beams import beam_params, candidates_after, step_beams
from tests.support.integrity import check_integrity

EOS, STOP = 2, 9
MODES = ["unified", "sosp", "sosp-mixed"]
Candidates = list[tuple[int, float]]


def beam_group(name: str = "a", prompt: int = 4, **changes: Any) -> SequenceGroup:
    return make_group(name, prompt, **beam_params(**changes))


def scripted(scheduler: Scheduler, by_rank: Mapping[int, Candidates]) -> SchedulerOutput:
    """One step in which the beam of rank i has these candidates."""
    output = scheduler.schedule()
    scheduler.update(
        {item.seq.seq_id: by_rank[item.seq.index] for item in output.scheduled if item.num_samples}
    )
    check_integrity(scheduler.block_manager)
    return output


def started(**changes: Any) -> tuple[Scheduler, SequenceGroup]:
    """Three beams of one prompt after its step: tokens 11, 12 and 13."""
    scheduler = make_scheduler(20)
    group = beam_group(**{"n": 3, **changes})
    scheduler.add_group(group)
    output = scripted(scheduler, {0: [(11, -1.0), (12, -1.5), (13, -2.0), (14, -9.0)]})
    assert [item.num_samples for item in output.scheduled] == [1]  # one row, not three
    return scheduler, group


def outputs(group: SequenceGroup) -> list[list[int]]:
    return [seq.output_token_ids for seq in group.seqs]


def test_the_prompt_forks_by_its_candidates() -> None:
    scheduler, group = started()
    assert outputs(group) == [[11], [12], [13]]
    assert [seq.cumulative_logprob for seq in group.seqs] == [-1.0, -1.5, -2.0]
    assert [seq.index for seq in group.seqs] == [0, 1, 2]
    # The last child keeps the parent's id 0; the others get theirs in order
    assert [seq.seq_id for seq in group.seqs] == [1, 2, 0]
    tables = [scheduler.block_manager.block_table(seq.seq_id) for seq in group.seqs]
    assert tables[0] == tables[1] == tables[2] and len(tables[0]) == 2
    assert group.forked and scheduler.block_manager.num_used_gpu_blocks == 2


def test_forks_come_before_frees_and_the_last_child_keeps_the_sequence() -> None:
    """One beam has three children, and the two others end without any, as in Figure 9."""
    scheduler, group = started()
    events: list[tuple[str, int]] = []
    blocks = scheduler.block_manager
    fork, free = blocks.fork, blocks.free
    blocks.fork = lambda a, b: (events.append((f"fork of {a}", b)), fork(a, b))[1]  # type: ignore
    blocks.free = lambda a: (events.append(("free", a)), free(a))[1]  # type: ignore
    bad: Candidates = [(5, -70.0), (6, -80.0)]
    before = list(group.seqs)
    scripted(scheduler, {0: bad, 1: [(21, -0.1), (22, -0.2), (23, -0.3), (24, -60.0)], 2: bad})
    assert outputs(group) == [[12, 21], [12, 22], [12, 23]]
    assert events == [("fork of 2", 3), ("fork of 2", 4), ("free", 1), ("free", 0)]
    assert group.seqs[2] is before[1] and before[1].index == 2
    assert [seq.cumulative_logprob for seq in group.seqs] == [-1.6, -1.7, -1.8]
    assert group.seqs[0].token_logprobs == [(-1.5, 2), (-0.1, 1)]
    assert set(blocks.tables) == {2, 3, 4}


def test_new_ids_go_by_old_beam_then_by_new_rank() -> None:
    scheduler, group = started(n=4, max_tokens=6)
    bad: Candidates = [(35, -9.0), (36, -9.5)]
    # New ranks: 0 and 2 of old beam 1, 1 and 3 of old beam 0; the last of each keeps its id
    scripted(scheduler, {0: [(31, -1.0), (32, -2.0)], 1: [(33, -0.1), (34, -0.9)], 2: bad, 3: bad})
    assert outputs(group) == [[12, 33], [11, 31], [12, 34], [11, 32]]
    assert [seq.seq_id for seq in group.seqs] == [5, 4, 2, 1]


def test_generated_blocks_are_shared_and_copied_on_write() -> None:
    scheduler, group = started()
    first = scripted(scheduler, {i: [(20 + i, -1.0), (30 + i, -50.0)] for i in range(3)})
    assert first.blocks_to_copy == []  # the prompt's 2 blocks of 2 were full
    one: Candidates = [(40, -0.1), (41, -0.2), (42, -0.3)]
    scripted(scheduler, {0: one, 1: [(5, -90.0), (6, -91.0)], 2: [(5, -90.0), (6, -91.0)]})
    assert outputs(group) == [[11, 20, 40], [11, 20, 41], [11, 20, 42]]
    blocks = scheduler.block_manager
    assert blocks.num_used_gpu_blocks == 3 and blocks.num_shared_blocks == 3
    scripted(scheduler, {i: [(50 + i, -1.0), (60 + i, -50.0)] for i in range(3)})
    both: Candidates = [(70, -0.1), (71, -0.15), (72, -0.2)]
    scripted(scheduler, {0: both, 1: [(5, -90.0), (6, -91.0)], 2: [(5, -90.0), (6, -91.0)]})
    assert len(scheduler.schedule().blocks_to_copy) == 0  # 8 tokens: the blocks are full again


def test_copy_on_write_where_a_block_is_half_full() -> None:
    scheduler = make_scheduler(20)
    group = beam_group(prompt=3, n=3)
    scheduler.add_group(group)
    scripted(scheduler, {0: [(11, -1.0), (12, -1.5), (13, -2.0)]})
    output = scheduler.schedule()
    assert len(output.blocks_to_copy) == 2  # the third writer has the block to itself


def test_the_hopes_of_never_end_with_the_longest_output() -> None:
    """4 tokens: -5 / 4 is worse than both that have ended. The prompt's 8 do not count."""
    scheduler, group = started(
        prompt=8, n=2, stop_token_ids=[STOP], max_tokens=4, ignore_eos=True, early_stopping="never"
    )
    ends: Candidates = [(STOP, -0.1), (21, -4.0)]
    scripted(scheduler, {0: ends, 1: ends})
    assert outputs(group) == [[11, STOP], [12, STOP]]
    assert not scheduler.has_unfinished()


def test_without_early_stopping_beams_are_judged_by_their_length_now() -> None:
    """-1.2 / 2 is better than the hypothesis of one token, -0.9; -1.2 is not."""
    scheduler = make_scheduler(20)
    group = beam_group(n=2, stop_token_ids=[STOP], ignore_eos=True)
    scheduler.add_group(group)
    scripted(scheduler, {0: [(STOP, -0.9), (11, -1.0), (12, -1.1)]})
    scripted(scheduler, {0: [(STOP, -0.1), (21, -9.0)], 1: [(22, -0.1), (23, -9.0)]})
    assert outputs(group) == [[12, 22], [11, 21]] and scheduler.has_unfinished()


def test_only_ends_among_the_first_k_become_hypotheses() -> None:
    scheduler, group = started(n=2, stop_token_ids=[STOP], max_tokens=8)
    assert outputs(group) == [[11], [12]]
    # Values: 11 STOP -1.5 | 12 a -2.0 | 12 EOS -2.1 | 11 b -3: the third is no longer among the two
    scripted(scheduler, {0: [(STOP, -0.5), (21, -2.0)], 1: [(22, -0.5), (EOS, -0.6), (23, -4.0)]})
    assert outputs(group) == [[12, 22], [11, 21]]
    assert group.beam is not None
    (found,) = group.beam.hypotheses
    assert (found.seq.output_token_ids, found.score) == ([11, STOP], -0.75)
    assert (found.seq.finish_reason, found.seq.stop_reason) == ("stop", STOP)


def test_done_frees_all_and_leaves_the_hypotheses() -> None:
    scheduler, group = started(n=2, early_stopping=True)
    output = scheduler.schedule()
    ids = [item.seq.seq_id for item in output.scheduled]
    ended = scheduler.update({
        ids[0]: [(EOS, -1.0), (21, -5.0)],
        ids[1]: [(EOS, -0.1), (22, -5.0)],
    })  # fmt: skip
    assert ended == [group] and group.finished and not scheduler.has_unfinished()
    assert outputs(group) == [[12, EOS], [11, EOS]]
    assert [seq.cumulative_logprob for seq in group.seqs] == [-1.6, -2.0]
    assert [(seq.index, seq.num_computed_tokens) for seq in group.seqs] == [(0, 0), (1, 0)]
    assert {(seq.finish_reason, seq.stop_reason) for seq in group.seqs} == {("stop", None)}
    assert scheduler.block_manager.num_used_gpu_blocks == 0 and not scheduler.running
    assert group.prompt_token_ids == [100, 101, 102, 103]


@pytest.mark.parametrize("max_model_len", [32, 6])
def test_at_the_limit_every_beam_ends(max_model_len: int) -> None:
    """All end by length, except the one whose last token is the end of sequence."""
    scheduler = make_scheduler(20, max_model_len=max_model_len)
    group = beam_group(n=2, max_tokens=2 if max_model_len == 32 else None)
    scheduler.add_group(group)
    scripted(scheduler, {0: [(11, -1.0), (12, -1.5), (13, -2.0)]})
    scripted(scheduler, {0: [(EOS, -0.5), (21, -2.0)], 1: [(22, -0.5), (23, -4.0)]})
    assert outputs(group) == [[11, EOS], [12, 22]]
    assert [seq.finish_reason for seq in group.seqs] == ["stop", "length"]


def test_fewer_hypotheses_when_there_are_no_more() -> None:
    scheduler = make_scheduler(20)
    group = beam_group(n=3)
    scheduler.add_group(group)
    scripted(scheduler, {0: [(EOS, -1.0)]})
    assert outputs(group) == [[EOS]] and not scheduler.has_unfinished()


def test_fewer_beams_when_few_tokens_are_possible() -> None:
    scheduler = make_scheduler(20)
    group = beam_group(n=3, max_tokens=3)
    scheduler.add_group(group)
    scripted(scheduler, {0: [(11, -1.0)]})
    assert outputs(group) == [[11]] and group.forked and group.reserved == 3
    scripted(scheduler, {0: [(12, -1.0), (13, -2.0)]})
    assert outputs(group) == [[11, 12], [11, 13]]


def test_a_beam_without_candidates_dies_and_the_last_one_ends_the_request() -> None:
    """It ends with the hypotheses there are. Without any it is aborted, and its beams are shown."""
    alive: Candidates = [(21, -1.0)]
    for last, wanted in (
        ([(EOS, -1.0)], [([12, 21, EOS], "stop", None)]),
        ([], [([12, 21], "abort", NO_TOKEN)]),
    ):
        scheduler, group = started()
        scripted(scheduler, {0: [], 1: alive, 2: []})
        assert outputs(group) == [[12, 21]] and group.reserved == 3
        scripted(scheduler, {0: last})
        found = [(seq.output_token_ids, seq.finish_reason, seq.stop_reason) for seq in group.seqs]
        assert found == wanted and group.finished and not scheduler.has_unfinished()
        assert scheduler.block_manager.num_used_gpu_blocks == 0 and not scheduler.running


def test_a_hypothesis_is_enough_when_all_beams_have_died() -> None:
    scheduler, group = started()
    scripted(scheduler, {0: [(EOS, -1.0)], 1: [(22, -1.0)], 2: []})
    assert outputs(group) == [[12, 22]]
    scripted(scheduler, {0: []})
    assert outputs(group) == [[11, EOS]] and not scheduler.has_unfinished()


@pytest.mark.parametrize("scheduling", MODES)
def test_places_stay_reserved_for_the_width(scheduling: str) -> None:
    """One live beam now may be k in the next step: nobody else gets their places."""
    scheduler = make_scheduler(20, max_num_seqs=3, scheduling=scheduling)
    group = beam_group(n=3, max_tokens=4)
    scheduler.add_group(group)
    scripted(scheduler, {0: [(11, -1.0)]})
    scheduler.add_group(make_group("b", 2, max_tokens=1))
    while scheduler.has_unfinished() and not group.finished:
        output = scheduler.schedule()
        assert {item.group for item in output.scheduled} == {group}
        step_beams(scheduler, output)
    step_beams(scheduler)
    assert not scheduler.has_unfinished()


def test_the_barrier_holds_candidates_while_others_are_computed() -> None:
    """With a budget of 2 tokens a step, three beams take two steps; the first two wait."""
    scheduler, group = started()
    scheduler._state.limits = type(scheduler._state.limits)(8, 2, 32)
    first = scripted(scheduler, {0: [(21, -1.0), (9, -9.0)], 1: [(22, -1.0), (9, -9.0)]})
    assert len(first.scheduled) == 2
    assert [seq.candidates is not None for seq in group.seqs] == [True, True, False]
    assert outputs(group) == [[11], [12], [13]]
    second = scripted(scheduler, {2: [(23, -1.0), (9, -9.0)]})
    assert [item.seq.index for item in second.scheduled] == [2]
    assert outputs(group) == [[11, 21], [12, 22], [13, 23]]
    assert all(seq.candidates is None for seq in group.seqs)


@pytest.mark.parametrize("scheduling", ["sosp", "sosp-mixed"])
def test_a_beam_that_a_rebuild_leaves_out_is_decoded_alone(scheduling: str) -> None:
    """5 tokens of the first beam and one of each other are 9: the last has to wait."""
    scheduler = make_scheduler(
        20, block_size=4, scheduling=scheduling, max_num_batched_tokens=8, max_model_len=8
    )
    scheduler.add_group(beam_group(n=5, max_tokens=3))
    step_beams(scheduler)
    scheduler.recompute_all()
    planned = [[one.seq.index for one in step_beams(scheduler).scheduled] for _ in range(2)]
    assert planned == [[0, 1, 2, 3], [4]]


def test_no_step_is_planned_ahead_of_a_selection() -> None:
    scheduler = make_scheduler(20, max_num_batched_tokens=4)
    scheduler.add_group(beam_group(prompt=6, n=2))
    scheduler.schedule()
    assert scheduler.can_advance()  # a chunk of the prompt: nothing is selected yet
    scheduler.update({})
    output = scheduler.schedule()
    assert not scheduler.can_advance()
    step_beams(scheduler, output)
    scheduler.schedule()
    assert not scheduler.can_advance()


@pytest.mark.parametrize("steps", range(5))
def test_i22_abort_frees_all_beams(steps: int) -> None:
    scheduler = make_scheduler(20, max_num_batched_tokens=4)
    group = beam_group(prompt=6, n=3)
    scheduler.add_group(group)
    scheduler.add_group(make_group("other", 3, max_tokens=2))
    for _ in range(steps):
        step_beams(scheduler)
    live = list(group.seqs)
    output = scheduler.schedule()  # and in the middle of a step
    assert scheduler.abort("a") and not scheduler.abort("a")
    step_beams(scheduler, output)
    assert group.seqs == live and {seq.finish_reason for seq in live} == {"abort"}
    while scheduler.has_unfinished():
        step_beams(scheduler)
    assert scheduler.block_manager.num_used_gpu_blocks == 0


def finished_alone(params: dict[str, Any], prompt: int) -> list[tuple[list[int], Any]]:
    """A request's outputs with a roomy engine to itself."""
    scheduler = make_scheduler(400, max_num_batched_tokens=400)
    group = make_group("alone", prompt, **params)
    scheduler.add_group(group)
    while scheduler.has_unfinished():
        step_beams(scheduler)
    return [(seq.output_token_ids, seq.finish_reason) for seq in group.seqs]


requests = st.fixed_dictionaries({
    "n": st.integers(1, 4),
    "max_tokens": st.integers(1, 9) | st.just(9),
    "length_penalty": st.sampled_from([0.0, 1.0, 2.0]),
    "early_stopping": st.sampled_from([True, False, "never"]),
    "ignore_eos": st.booleans(),
    "stop_token_ids": st.sampled_from([[], [4]]),
})  # fmt: skip


@pytest.mark.parametrize("scheduling", MODES)
@pytest.mark.parametrize("mode", ["recompute", "swap", None])
@given(
    beams=st.lists(st.tuples(requests, st.integers(1, 7)), min_size=1, max_size=5),
    others=st.integers(0, 3),
    spare=st.integers(0, 4),
    cpu=st.integers(0, 12),
    budget=st.integers(3, 24),
    caching=st.booleans(),
)
def test_i19_i20_crowded_beams_end_as_they_would_alone(
    scheduling: Any, mode: Any, beams: Any, others: int, spare: int, cpu: int, budget: int,
    caching: bool,
) -> None:  # fmt: skip
    """Preempted, rebuilt, held at the barrier or not, beside samples that fork: always the same."""
    unified = scheduling == "unified"
    sampled = [make_group(f"s{i}", 3, n=1 + i, max_tokens=6) for i in range(others)]
    searches = [
        make_group(f"b{i}", prompt, **beam_params(**request))
        for i, (request, prompt) in enumerate(beams)
    ]
    least = 0
    for group in [*sampled, *searches]:
        per_seq, shared = blocks_of_one(group, 2, 16)
        least = max(least, shared + group.num_samples * (per_seq - shared + 1))
    scheduler = make_scheduler(
        least + spare,
        cpu,
        scheduling=scheduling,
        preemption_mode=mode,
        caching=caching and unified,
        max_model_len=16,
        max_num_batched_tokens=budget if unified else 16,
    )
    for group in [*sampled, *searches]:
        scheduler.add_group(group)
    for _ in range(2000):
        if not scheduler.has_unfinished():
            break
        assert step_beams(scheduler).scheduled, "I20: an empty step"
        check_integrity(scheduler.block_manager)
    assert not scheduler.has_unfinished(), "I20"
    assert scheduler.block_manager.num_used_gpu_blocks == 0, "I9"
    assert scheduler.block_manager.num_free_cpu_blocks == cpu
    for group, (request, prompt) in zip(searches, beams, strict=True):
        found = [(seq.output_token_ids, seq.finish_reason) for seq in group.seqs]
        assert found == finished_alone(beam_params(**request), prompt)
        assert 1 <= len(found) <= group.num_samples


def test_width_one_is_greedy() -> None:
    """I38: until its end the best token each time."""
    scheduler = make_scheduler(20)
    group = beam_group(n=1, max_tokens=6, ignore_eos=True)
    scheduler.add_group(group)
    while scheduler.has_unfinished():
        step_beams(scheduler)
    tokens = list(group.prompt_token_ids)
    for _ in range(6):
        tokens.append(candidates_after(tokens)[0][0])
    assert group.seqs[0].token_ids == tokens
    assert not group.forked and group.seqs[0].seq_id == -1
