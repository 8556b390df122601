"""One engine, driven step by step, and what must hold of it at any moment (I1 to I4, I9, I22)."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from hypothesis import event

from jax_engine import LLMEngine
from reference.engine import ReferenceEngine
from reference.sequence import SequenceGroup
from reference.transformer import Transformer
from tests.support.engine_pair import Request, add_to_engine, add_to_reference, same_or_rounding
from tests.support.integrity import check_integrity


class EngineDriver:
    """A step takes one second of the engine's clock.

    Attributes:
        now: Steps so far, and seconds.
        added: When each request was added, by request id.
        outputs: The last output of each request that ended, by request id.
    """

    def __init__(self, engine: LLMEngine) -> None:
        self.engine = engine
        self.now = 0
        self.added: dict[str, int] = {}
        self.outputs: dict[str, Any] = {}
        engine.clock = lambda: float(self.now)

    def add(self, request: Request, timeout: float | None = None) -> None:
        add_to_engine(self.engine, replace(request, timeout=timeout))
        self.added[request.request_id] = self.now

    def abort(self, request_id: str) -> None:
        for output in self.engine.abort_request(request_id):
            self._take(output)
        assert self.engine.abort_request(request_id) == [], "I22: twice is once"

    def step(self, abort_in_outputs: Iterable[str] = ()) -> None:
        """One step; after each of its outputs is looked at, these requests are aborted."""
        for output in self.engine.step():
            if output.finished:
                self._take(output)
            for request_id in abort_in_outputs:
                self.abort(request_id)
        self.now += 1
        check_integrity(self.engine.scheduler.block_manager)

    def _take(self, output: Any) -> None:
        assert output.request_id not in self.outputs, "an end is told once"
        self.outputs[output.request_id] = output


def is_refused(engine: LLMEngine, request: Request) -> bool:
    try:
        engine.check_request(request.prompt, request.sampling_params())
    except ValueError:
        return True
    return False


def check_idle(engine: LLMEngine) -> None:
    """I9: nothing is left of anybody."""
    stats = engine.stats()
    assert stats.num_used_blocks == stats.num_running == stats.num_waiting == stats.num_swapped == 0
    blocks = engine.scheduler.block_manager
    assert blocks.num_free_cpu_blocks == blocks.num_cpu_blocks
    assert not blocks.tables and not engine.scheduler.groups and not engine.scheduler._state.seq_ids
    running = engine._running
    assert not kept_requests(engine) and not running.deadlines
    assert not engine._pipeline._opened
    assert not running.requests and not running.news and not running.ended


def kept_requests(engine: LLMEngine) -> set[int]:
    """The numbers of requests that the worker knows, and will not forget with the next step."""
    return set(engine.worker.setups) - set(engine._pipeline.closed)


def groups_without_aborts(
    reference: ReferenceEngine, requests: Iterable[Request]
) -> dict[str, SequenceGroup]:
    """What the oracle gives each of them when nobody is aborted, by request id."""
    groups = {}
    for request in requests:
        add_to_reference(reference, request, request.request_id)
    while reference.has_unfinished_requests():
        groups |= {group.request_id: group for group in reference.step()}
    return groups


def check_samples(
    transformer: Transformer, group: SequenceGroup, output: Any, *, may_be_aborted: bool
) -> None:
    """Each sample is the oracle's or, where somebody aborted the request, a beginning of it."""
    for one in output.outputs:
        aborted = one.finish_reason == "abort"
        event("aborted" if aborted else "finished")
        assert may_be_aborted or not aborted, "nobody aborted it"
        wanted = group.seqs[one.index].output_token_ids
        if not aborted or one.token_ids != wanted[: len(one.token_ids)]:
            same_or_rounding(transformer, group, one.index, one.token_ids)
