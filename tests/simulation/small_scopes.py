"""All interleavings of a few requests on a few blocks, on the controller and on the oracle's.

From each state that can be reached every action is tried: the next request comes, a step runs, a
request is aborted. States that are equal in all that decides what follows are gone on from once.
"""

import copy
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jax_engine.core import BlockManager, Scheduler, SequenceGroup
from reference.blocks import BlockManager as ReferenceBlockManager
from reference.scheduler import Scheduler as ReferenceScheduler
from reference.sequence import SequenceGroup as ReferenceSequenceGroup
from tests.support.drive import Driver
from tests.support.integrity import check_integrity, snapshot
from tests.support.invariants import check_quiescence
from tests.support.strategies import Request, Settings

SIDES = (
    (ReferenceBlockManager, ReferenceScheduler, ReferenceSequenceGroup),
    (BlockManager, Scheduler, SequenceGroup),
)


@dataclass(frozen=True)
class Scope:
    """
    Attributes:
        requests: (prompt, n, max_tokens) of each, in the order in which they come.
        num_blocks: Size of the device's pool; the host's has as many.
    """

    scheduling: str
    preemption_mode: str
    requests: tuple[tuple[tuple[int, ...], int, int], ...]
    num_blocks: int
    block_size: int = 1

    @property
    def settings(self) -> Settings:
        longest = max(len(prompt) + max_tokens for prompt, _, max_tokens in self.requests)
        return Settings(
            block_size=self.block_size,
            num_gpu_blocks=self.num_blocks,
            num_cpu_blocks=self.num_blocks,
            watermark=0.0,
            enable_prefix_caching=self.scheduling == "unified",
            max_num_seqs=4,
            max_num_batched_tokens=max(4, longest),
            max_model_len=longest,
            scheduling=self.scheduling,
            policy="fcfs",
            preemption_mode=self.preemption_mode,
            enable_chunked_prefill=self.scheduling == "unified",
            long_prefill_token_threshold=0,
        )


@dataclass
class State:
    """Both sides after the same actions, and the actions."""

    reference: Driver
    engine: Driver
    actions: tuple[str, ...] = ()

    def after(self, action: str, scope: Scope) -> "State":
        """A copy in which this has happened, too; with everything checked."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of copying itertools.count
            state = copy.deepcopy(self)
        state.actions += (action,)
        try:
            state.act(action, scope)
        except AssertionError as error:
            raise AssertionError(f"{scope}: {' '.join(state.actions)}: {error}") from error
        return state

    def act(self, action: str, scope: Scope) -> None:
        kind, _, name = action.partition(":")
        pairs = zip((self.reference, self.engine), SIDES, strict=True)
        for driver, (_, _, group_class) in pairs:
            if kind == "add":
                request = _request(*scope.requests[int(name)], arrival=int(name))
                driver.add(request.group(group_class, name), request)
            elif kind == "step":
                driver.step()
            else:
                driver.abort(name)
        assert view(self.engine) == view(self.reference)
        check_integrity(self.engine.blocks)
        self.engine.check_contents()
        if not self.engine.scheduler.has_unfinished():
            for driver in (self.reference, self.engine):
                check_quiescence(driver.blocks, scope.num_blocks, scope.num_blocks)

    def actions_from_here(self, scope: Scope) -> Iterator[str]:
        if len(self.engine.accepted) < len(scope.requests):
            yield f"add:{len(self.engine.accepted)}"
        if self.engine.scheduler.has_unfinished():
            yield "step"
        yield from (f"abort:{group.request_id}" for group in self.engine.groups())

    def key(self) -> str:
        """All that decides what follows."""
        engine, inner = self.engine, self.engine.scheduler._state
        seqs = [
            (seq.attached, seq.num_computed_tokens, group.num_left, group.reserved)
            for group in engine.accepted.values()
            for seq in group.seqs
        ]
        rebuilding = inner.rebuilding and inner.rebuilding.request_id
        return repr((view(engine), seqs, rebuilding, snapshot(engine.blocks)))


@dataclass
class Explored:
    """What there was to see in a scope."""

    num_states: int = 0
    num_preemptions: int = 0
    num_copies: int = 0


def explore(scope: Scope) -> Explored:
    """Goes through all states; raises AssertionError with the actions that lead to a bad one."""
    drivers = []
    for manager_class, scheduler_class, _ in SIDES:
        blocks = scope.settings.block_manager(manager_class)
        scheduler = scheduler_class(blocks, **scope.settings.scheduler_arguments)
        drivers.append(Driver(scheduler, blocks, scope.settings))
    found = Explored()
    known: set[str] = set()
    left = [State(*drivers)]
    while left:
        state = left.pop()
        for action in state.actions_from_here(scope):
            after = state.after(action, scope)
            assert after.engine.num_steps <= after.engine.step_bound, f"I20: {after.actions}"
            found.num_preemptions += after.engine.num_preempted > state.engine.num_preempted
            found.num_copies += after.engine.num_copies > state.engine.num_copies
            key = after.key()
            if key not in known:
                known.add(key)
                left.append(after)
    found.num_states = len(known)
    return found


def view(driver: Driver) -> Any:
    """What can be seen of either side."""
    queues = [
        [group.request_id for group in queue]
        for queue in (driver.scheduler.waiting, driver.scheduler.running, driver.scheduler.swapped)
    ]
    seqs = [
        (name, seq.index, list(seq.token_ids), seq.num_computed_tokens, seq.status.name,
         seq.finish_reason, driver.blocks.block_table(seq.seq_id), driver.blocks.device(seq.seq_id))
        for name, group in driver.accepted.items()
        for seq in group.seqs
    ]  # fmt: skip
    return queues, seqs, sorted(driver.finished)


def _request(prompt: tuple[int, ...], n: int, max_tokens: int, *, arrival: int) -> Request:
    return Request(
        prompt=prompt, n=n, best_of=None, max_tokens=max_tokens, min_tokens=0, stop_token_ids=(),
        ignore_eos=True, arrival_time=float(arrival), priority=0, cache_salt=None,
    )  # fmt: skip
