"""The engine and the oracle's engine, driven by the same commands step by step (I30 to I37, I51).

A step takes one second of the engine's clock. Where the engine plans no step ahead (`exact`), the
two do the same in every step, so all that can be seen is compared after each: tokens so far,
log-probabilities, gauges, counters, who has ended. Where it does, an end is noticed a step later:
then the oracle serves everybody to the end, and what was cut short is a beginning of that.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from jax_engine import RequestOutput
from reference.sequence import SequenceGroup
from reference.transformer import Transformer
from tests.support import in_numpy
from tests.support.engine_under_test import EngineUnderTest, Request
from tests.support.in_numpy import InNumpy
from tests.support.output_pair import check_cache_hits, check_output
from tests.support.sometimes import saw
from tests.support.stats_oracle import StatsOracle, check_metrics, check_stats

STEP_LIMIT = 1000


@dataclass
class Served:
    """A request that both have accepted.

    Attributes:
        wanted: The oracle's, under an id of its own: the engine's may come back.
        added: When.
        output: The engine's newest.
        cut_short: Whether it was aborted, or has run out of time.
        lost: Whether it went down with a step that failed.
    """

    request: Request
    wanted: in_numpy.Served
    added: int
    output: RequestOutput | None = None
    cut_short: bool = False
    lost: bool = False

    @property
    def group(self) -> SequenceGroup:
        return self.wanted.group

    @property
    def runs(self) -> bool:
        return not (self.lost or (self.output is not None and self.output.finished))


class SideBySide:
    """
    Args:
        runner: The engine's, where it is a `StubRunner`, which fails when it is told to.

    Attributes:
        now: Steps so far, and seconds.
        served: In the order in which they were added, all there ever were.
        running: Those that have not ended, by the engine's request id.
        exact: Whether the two are still in step with each other.
    """

    def __init__(
        self,
        engine: EngineUnderTest,
        oracle: InNumpy,
        transformer: Transformer | None,
        *,
        exact: bool,
        runner: Any = None,
    ) -> None:
        self.engine = engine
        self.runner = runner
        self.oracle = oracle
        self.transformer = transformer
        self.exact = exact
        self.now = 0
        self.served: list[Served] = []
        self.running: dict[str, Served] = {}
        self.stats = StatsOracle(oracle.reference)
        engine.clock = lambda: float(self.now)
        # Once they are out of step its time stands still: everybody is served to the end
        oracle.clock = lambda: float(self.now) if self.exact else -math.inf

    def add(self, request: Request) -> Served | None:
        """None if both refuse it, or its id is taken."""
        if request.request_id in self.running:
            with pytest.raises(ValueError, match="request_id"):
                self.engine.add(Request(request.request_id, request.prompt[:1], {"max_tokens": 1}))
            return None
        name = str(len(self.served))
        if not same_answer(self.engine, request, self.oracle, replace(request, request_id=name)):
            return None
        served = Served(request, self.oracle.running[name], self.now)
        self.served.append(served)
        self.running[request.request_id] = served
        return served

    def abort(self, request_id: str) -> None:
        """Aborts a request in engine and oracle. An unknown id does nothing."""
        served = self.running.get(request_id)
        if served is not None:
            state = self.engine.debug_state()
            if self.runner is not None and state is not None:
                number = state.groups[request_id].number
                saw("abort in flight", self.runner.is_in_flight(number))
            served.cut_short = True
            if self.exact:
                self.oracle.abort([served.group.request_id])
        for output in self.engine.abort([request_id]):
            assert output.finished
            self._take(output)
        assert self.engine.abort([request_id]) == [], "I22: twice is once"

    def step(
        self, while_looking: Callable[[], Sequence[str]] = list, fail_at: str | None = None
    ) -> None:
        """One step of both; after each of its outputs is looked at, these ids are aborted.

        Args:
            fail_at: Where the runner is to raise, once: in this step or in the first behind it
                that comes there.
        """
        outputs = self._engine_step(fail_at)
        if outputs is None:
            self._lose_all()
        else:
            self._oracle_step()
            names = [output.request_id for output in outputs]
            assert len(set(names)) == len(names), "I51: two outputs of one request"
            for output in outputs:
                self._take(output)
            state = self.engine.debug_state()
            if self.exact and state is not None:
                check_stats(
                    state.stats, self.engine.get_metrics(), self.oracle.reference, self.stats
                )
            for _ in outputs:
                for request_id in while_looking():
                    self.abort(request_id)
        if state := self.engine.debug_state():
            state.check()
        self.now += 1

    def _engine_step(self, fail_at: str | None) -> list[Any] | None:
        """None if it failed, which the engine must tell."""
        if self.runner is None:
            return self.engine.step()
        self.runner.fail_at = armed = fail_at or self.runner.fail_at
        try:
            outputs = self.engine.step()
        except self.runner.Error:
            assert armed
            return None
        assert self.runner.fail_at == armed, "a failure was swallowed"
        return outputs

    def _oracle_step(self) -> None:
        for served in self.running.values():
            timeout = served.request.timeout
            if timeout is not None and served.request.arrival_time + timeout <= self.now:
                saw("deadline")
                served.cut_short = True
        self.oracle.advance()

    def _lose_all(self) -> None:
        """All that ran is gone, nothing is cached; from here on the steps are not the oracle's."""
        saw("a step failed")
        if state := self.engine.debug_state():
            state.check_idle()
            assert not state.blocks.cached
        for served in self.running.values():
            served.lost = True
            self.oracle.abort([served.group.request_id])
        self.running.clear()
        self.exact = False

    def finish(self) -> None:
        """To the end of both, and what must hold there (I9, I20, I51)."""
        limit = self.now + STEP_LIMIT
        while self.engine.is_busy() or self.oracle.is_busy():
            self.step()
            assert self.now < limit, "I20: a request hangs"
        assert not self.running
        state = self.engine.debug_state()
        if state is not None:
            state.check_idle()
            saw("preempted by recompute", state.stats.num_recomputed)
            saw("preempted by swap", state.stats.num_swapped_out)
        all_same = True
        kept = [one for one in self.served if not one.lost]
        for one in kept:
            assert one.output is not None
            all_same &= check_output(
                self.transformer,
                one.group,
                one.output,
                may_be_aborted=one.cut_short,
                alike=self.exact,
            )
        ends = [(one.group, one.output) for one in kept if one.output is not None]
        self._note_what_happened()
        # What was lost may have been hit, or counted, before
        if state is None or len(kept) < len(self.served):
            return
        check_cache_hits(state.blocks.block_size, ends)
        if all_same:
            early = {one.group.request_id for one in kept if one.cut_short}
            check_metrics(self.engine.get_metrics(), ends, set() if self.exact else early)

    def _note_what_happened(self) -> None:
        for one in self.served:
            saw("runs in parts", one.group.part_size < one.group.num_samples)
            saw("cache hit", one.output is not None and one.output.num_cached_tokens > 0)
        saw("step by step the oracle's", self.exact)

    def _take(self, output: Any) -> None:
        served = self.running[output.request_id]
        group = served.group
        assert output.prompt_token_ids == served.request.prompt
        served.output = output
        if output.finished:
            del self.running[output.request_id]
            assert output.metrics.finished_time == self.now
        assert output.metrics.arrival_time == served.request.arrival_time
        if not self.exact:
            return
        self.exact = check_output(self.transformer, group, output, may_be_aborted=served.cut_short)
        if not self.exact:
            return
        assert output.metrics.first_token_time == served.wanted.first_token
        assert output.num_cached_tokens == max(0, group.num_cached_tokens), "I34"
        assert output.finished == all(seq.finished for seq in group.seqs)
        if not group.beam_search:
            texts = [seq.output_token_ids for seq in group.seqs]
            for one in output.outputs:
                seq = group.seqs[one.index]
                assert one.token_ids == texts[one.index], "as far as it has come"
                assert (one.finish_reason, one.stop_reason) == (seq.finish_reason, seq.stop_reason)
            if not output.finished:  # of best_of, too: which are the best is not known yet
                assert [one.index for one in output.outputs] == list(range(len(output.outputs)))


def same_answer(
    engine: EngineUnderTest, request: Request, oracle: EngineUnderTest, own: Request
) -> bool:
    """Whether the two accept it: both do, or neither."""
    accepted = []
    for one, asked in ((engine, request), (oracle, own)):
        try:
            one.add(asked)
            accepted.append(True)
        except ValueError:
            accepted.append(False)
    assert accepted[0] == accepted[1]
    return accepted[0]
