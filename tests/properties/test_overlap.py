"""Steps planned ahead (`Scheduler.advance`): the same tokens, no leak, and each slot holds its own.

Two engines' schedulers get the same requests: one plans a step when the tokens of the one before
are known, the other plans it before. What differs is when an end is noticed, and so who shares a
step with whom; what a request gets must not.
"""

from types import SimpleNamespace
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from jax_engine.core import BlockManager, Scheduler, SequenceGroup
from jax_engine.errors import InvalidRequestError
from tests.support.invariants import check_blocks, check_queues, check_quiescence
from tests.support.shadow import ShadowCache
from tests.support.strategies import Request, Settings, next_token, requests, settings

STEP_LIMIT = 4000


class Overlapped:
    """One scheduler, one step ahead if asked, with a shadow of the cache.

    A step's writes happen on the device after those of the step before it, so they are replayed
    when that one's tokens are known, through the block tables as they were when it was planned.
    """

    def __init__(self, settings: Settings, *, ahead: bool) -> None:
        self.settings, self.ahead = settings, ahead
        self.blocks = settings.block_manager(BlockManager)
        self.scheduler = Scheduler(self.blocks, **settings.scheduler_arguments)
        self.shadow = ShadowCache(
            settings.block_size, settings.num_gpu_blocks, settings.num_cpu_blocks
        )
        self.planned: Any = None
        self.rows: list[tuple[Any, int]] = []
        self.num_preempted = self.num_ahead = self.num_dropped = 0
        self.groups: dict[str, SequenceGroup] = {}

    def add(self, request_id: str, request: Request) -> None:
        group = request.group(SequenceGroup, request_id)
        try:
            self.scheduler.add_group(group)
        except InvalidRequestError:
            return
        self.groups[request_id] = group

    def step(self) -> None:
        plan = self.planned
        if plan is None or all(item.seq.finish_reason is not None for item in plan.scheduled):
            self.scheduler.drop_steps()
            plan, tables = self.plan()
            self.shadow.replay(plan, tables)
        self.rows = _rows(plan)
        following = None
        if self.ahead and self.scheduler.can_advance():
            self.scheduler.advance()
            following, tables = self.plan()
            self.num_ahead += 1
        live = [item for item in plan.scheduled if item.seq.finish_reason is None]
        self.num_dropped += len(plan.scheduled) - len(live)
        self.scheduler.update(
            {
                item.seq.seq_id: [
                    next_token(item.seq.token_ids, item.seq.index + i)
                    for i in range(item.num_samples)
                ]
                for item in live
                if item.num_samples
            }
        )
        self.planned = None
        if following is not None:
            self.shadow.replay(following, tables)
            self.planned = following if following.scheduled else None
        self.check()

    def plan(self) -> tuple[Any, Any]:
        """A step, and the block tables that it goes by."""
        output = self.scheduler.schedule()
        for item in output.scheduled:
            end = item.start + item.num_tokens
            assert end < item.group.stop.max_len, "computes what nobody will ask for"
            if item.seq.pending:
                assert (item.seq, -1 - item.seq.pending) in self.rows, "waits for another's token"
        self.num_preempted += len(output.preempted)
        tables = {
            item.seq.seq_id: list(self.blocks.block_table(item.seq.seq_id))
            for item in output.scheduled
        }
        return output, SimpleNamespace(block_table=tables.__getitem__)

    def check(self) -> None:
        seqs = [seq for group in self.groups.values() for seq in group.seqs]
        assert not any(seq.pending for seq in seqs)
        settings = self.settings
        seq_ids = [seq.seq_id for seq in seqs]
        check_blocks(self.blocks, seq_ids, settings.num_gpu_blocks, settings.num_cpu_blocks)
        key = lambda group: group.key  # noqa: E731
        check_queues(self.scheduler, self.blocks, key, settings.max_num_seqs)


def _rows(plan: Any) -> list[tuple[Any, int]]:
    """Who gets the token of which row of a step."""
    samplers = [item.seq for item in plan.scheduled for _ in range(item.num_samples)]
    return [(seq, row) for row, seq in enumerate(samplers)]


def run(
    settings: Settings, workload: list[tuple[int, Request]], aborts: dict[int, str], *, ahead: bool
) -> Overlapped:
    """Adds each request at its step, aborts others at theirs, to the end."""
    side = Overlapped(settings, ahead=ahead)
    last = max([step for step, _ in workload] + list(aborts))
    step = 0
    while step <= last or side.scheduler.has_unfinished():
        for i, (when, request) in enumerate(workload):
            if when == step:
                side.add(str(i), request)
        if step in aborts:
            side.scheduler.abort(aborts[step])
            side.check()
        if side.scheduler.has_unfinished():
            side.step()
        step += 1
        assert step < STEP_LIMIT, "I20: a request hangs"
    check_quiescence(side.blocks, settings.num_gpu_blocks, settings.num_cpu_blocks)
    return side


@st.composite
def workloads(draw: st.DrawFn) -> tuple[Settings, list[tuple[int, Request]], dict[int, str]]:
    config = draw(settings("unified"))
    when = st.sampled_from([0, 0, 0, 1, 3, 9])
    workload = draw(
        st.lists(st.tuples(when, requests(config.max_model_len)), min_size=1, max_size=6)
    )
    names = st.sampled_from([str(i) for i in range(len(workload))])
    return config, workload, draw(st.dictionaries(st.integers(0, 12), names, max_size=2))


@given(case=workloads())
def test_i30_i32_a_step_planned_ahead_changes_no_token(case: Any) -> None:
    """I9, I13, I20, I30, I32: with and without, each request that is not aborted ends the same."""
    config, workload, aborts = case
    plain = run(config, workload, aborts, ahead=False)
    ahead = run(config, workload, aborts, ahead=True)
    for name in ("num_preempted", "num_ahead", "num_dropped"):
        if getattr(ahead, name):
            event(name)
    assert plain.groups.keys() == ahead.groups.keys()
    for request_id, group in plain.groups.items():
        if group.part_size < group.num_samples:
            event("runs in parts")
        if request_id in aborts.values():
            continue
        for mine, other in zip(ahead.groups[request_id].seqs, group.seqs, strict=True):
            assert mine.token_ids == other.token_ids
            assert (mine.finish_reason, mine.stop_reason) == (
                other.finish_reason,
                other.stop_reason,
            )


def test_i25_a_block_filled_by_a_token_of_the_step_ahead_is_cached() -> None:
    """Its last token is not known when its last slot is planned: the next plan enters it."""
    config = Settings(2, 16, 0, 0.0, True, 4, 16, 16, "unified", "fcfs", None, True, 0)
    request = Request((0, 1, 0), 1, None, 8, 0, (), True, 0.0, 0, None)
    side = run(config, [(0, request)], {}, ahead=True)
    assert side.num_ahead
    tokens = side.groups["0"].seqs[0].token_ids
    assert len(tokens) == 11
    assert len(side.blocks.cached_blocks([*tokens, 0, 0])) == 5  # the 11th was never computed
