"""Schedulers whose sequences draft, under random requests: each plan is the one without drafts and
drafts in what it leaves over; each sequence becomes what it becomes alone."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import given, note
from hypothesis import strategies as st
from hypothesis.stateful import initialize

from reference.blocks import BlockManager
from reference.scheduler import Scheduler
from reference.scheduler_state import ScheduledSequence, SchedulerOutput, SchedulerState
from reference.scheduler_unified import schedule_unified
from reference.sequence import SequenceGroup
from tests.reference.test_scheduler import SchedulerMachine, add, alone, outputs
from tests.support.drive import Driver
from tests.support.guesses import MAX_DRAFTS, Guesses, cacheable, drafting_settings, guesses
from tests.support.invariants import blocks_for
from tests.support.sometimes import saw
from tests.support.strategies import Request, Settings, next_token, requests


class CheckedScheduler(Scheduler):
    """Each plan must be the one without drafts, and drafts only in what that leaves over."""

    def schedule(self) -> SchedulerOutput:
        if not any(seq.drafts for group in self.running for seq in group.seqs):
            return super().schedule()
        cached = self.block_manager.prefix_cache.entries  # they never change: why copy them?
        state = copy.deepcopy(self._state, {id(entry): entry for entry in cached})
        drafts: dict[int, list[int]] = {}
        for group in (*state.running, *state.swapped, *state.waiting):
            for seq in group.seqs:
                drafts[seq.seq_id], seq.drafts = seq.drafts, []
        plain = schedule_unified(state)
        taken = drafts_by_rule(state, plain, drafts)
        output = super().schedule()
        assert as_planned(output) == as_planned(plain)
        assert [e.drafts for e in output.scheduled] == [
            taken[e.seq.seq_id] for e in plain.scheduled
        ]
        assert output.blocks_to_copy == plain.blocks_to_copy
        assert output.preempted == plain.preempted
        saw("guesses in a step that preempts", bool(plain.preempted))
        for group in (*self.running, *self.swapped, *self.waiting):
            assert all(seq.drafts == [] for seq in group.seqs), "a draft outlives the plan"
        return output

    def update(self, sampled: Mapping[int, Sequence[Any]]) -> list[SequenceGroup]:
        drafted = [(e, len(e.seq.token_ids)) for e in self._last.scheduled if e.num_drafts > 0]
        ended = super().update(sampled)
        for entry, known in drafted:
            num_right = len(entry.seq.token_ids) - known - 1
            saw("all drafts were right", num_right == entry.num_drafts)
            saw("a draft was wrong", num_right < entry.num_drafts)
            saw("an end in a draft", num_right < entry.num_drafts and entry.seq.finished)
            saw("a sample's drafts", entry.group.num_samples > 1)
        return ended


def as_planned(output: SchedulerOutput) -> list[tuple[int, ...]]:
    """The plan without its drafts."""
    return [
        (e.seq.seq_id, e.start, e.num_tokens - e.num_drafts, e.num_samples)
        for e in output.scheduled
    ]


def drafts_by_rule(
    state: SchedulerState, plain: SchedulerOutput, drafts: dict[int, list[int]]
) -> dict[int, tuple[int, ...]]:
    """What each seq_id takes of its drafts: one more, while there is room for one more."""
    config, blocks = state.config, state.blocks
    taken: dict[int, tuple[int, ...]] = {entry.seq.seq_id: () for entry in plain.scheduled}
    takers = [entry for entry in plain.scheduled if takes(entry) and drafts[entry.seq.seq_id]]
    if plain.preempted or not takers:
        return taken
    share = config.max_draft_tokens // len(takers)
    budget = config.max_num_batched_tokens - sum(entry.num_tokens for entry in plain.scheduled)
    free = blocks.num_free_gpu_blocks
    for entry in takers:
        seq, params = entry.seq, entry.group.params
        length = len(seq.token_ids)
        longest = min(config.max_model_len, seq.prompt_len + (params.max_tokens or 10**9))
        size, room = blocks.block_size, len(blocks.block_table(seq.seq_id))
        num_drafts = 0
        while (
            num_drafts < min(len(drafts[seq.seq_id]), share, budget)
            and length + num_drafts + 1 < longest
            and blocks_for(length + num_drafts + 1, size)
            <= room + max(0, free - blocks.watermark_blocks)
        ):
            num_drafts += 1
        free -= blocks_for(length + num_drafts, size) - room
        budget -= num_drafts
        taken[seq.seq_id] = tuple(drafts[seq.seq_id][:num_drafts])
    return taken


def takes(entry: ScheduledSequence) -> bool:
    single = entry.num_tokens == 1 and entry.num_samples == 1
    return single and not entry.group.beam_search and entry.seq.output_len >= 1


class DraftingDriver(Driver):
    """Sequences are given drafts before each step; after it no trace of a wrong one is left."""

    def __init__(self, chosen: Settings, guess: Guesses, max_draft_tokens: int) -> None:
        blocks = chosen.block_manager(BlockManager)
        scheduler = CheckedScheduler(
            blocks, **chosen.scheduler_arguments, max_draft_tokens=max_draft_tokens
        )

        def drafter(seq: Any) -> list[int]:
            return guess(seq.token_ids, lambda tokens: next_token(tokens, seq.index))

        super().__init__(scheduler, blocks, chosen, drafter)
        self.had: set[tuple[tuple[int, ...], str | None]] = set()

    def step(self) -> None:
        super().step()
        size = self.settings.block_size
        for group in self.accepted.values():
            for seq in group.seqs:
                self.had |= cacheable(seq.token_ids, group.cache_salt, size)
        for group in self.scheduler.running:
            for seq in group.unfinished:
                table = self.blocks.block_table(seq.seq_id)
                assert len(table) == blocks_for(seq.num_computed_tokens, size)
                waits_for_other_beams = int(seq.candidates is not None)
                assert seq.num_computed_tokens < len(seq.token_ids) + waits_for_other_beams
                held = self.blocks._tables.get(seq.seq_id)
                if held is not None and held.caching and self.settings.enable_prefix_caching:
                    assert held.num_offered == seq.num_computed_tokens // size
        for entry in self.blocks.prefix_cache.entries:
            assert (entry.prefix, entry.salt) in self.had, "what nobody has had is cached"
            assert self.shadow.gpu[entry.block][-1] == entry.prefix


class DraftingMachine(SchedulerMachine):
    """Requests come, steps are taken, requests are dropped, and all the time there are guesses."""

    @initialize(chosen=drafting_settings(), guess=guesses(), max_draft_tokens=MAX_DRAFTS)
    def build(self, chosen: Settings, guess: Guesses, max_draft_tokens: int) -> None:  # type: ignore[override]
        note(f"{chosen!r} {guess!r} {max_draft_tokens}")
        self.driver = DraftingDriver(chosen, guess, max_draft_tokens)
        self.num_requests = 0


TestDraftingMachine = DraftingMachine.TestCase


@given(data=st.data(), chosen=drafting_settings(), guess=guesses(), max_draft_tokens=MAX_DRAFTS)
def test_each_sequence_becomes_what_it_becomes_alone(
    data: st.DataObject, chosen: Settings, guess: Guesses, max_draft_tokens: int
) -> None:
    """However many of its guesses are right, whoever preempts it, wherever its end is."""
    one = requests(chosen.max_model_len, beams=True)
    workload: list[Request] = data.draw(st.lists(one, min_size=1, max_size=6))
    driver = DraftingDriver(chosen, guess, max_draft_tokens)
    for index, request in enumerate(workload):
        add(driver, f"r{index}", request)
    driver.finish_all()
    for name, sequences in outputs(driver).items():
        request = workload[int(name.removeprefix("r"))]
        if not request.use_beam_search:
            samples = range(request.num_samples)
            assert sequences == [alone(request, i, chosen.max_model_len) for i in samples]
