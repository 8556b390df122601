"""`LLMEngine` as an `EngineUnderTest`: asked itself, or through its loop; and a look inside it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jax_engine import LLMEngine, LoRARequest, SamplingParams
from jax_engine.core.sequence_group import SequenceGroup
from jax_engine.engine.engine_loop import EngineLoop
from jax_engine.engine.requests.request import RequestUpdate, outputs_of
from jax_engine.engine.stats import Metric
from jax_engine.errors import JaxEngineError
from jax_engine.outputs import AnyRequestOutput
from tests.support.engine_under_test import DebugState, GroupState, Request, SequenceState
from tests.support.integrity import snapshot
from tests.support.some_adapters import some_lora


class InProcess:
    """Asks the engine itself."""

    def __init__(self, engine: LLMEngine) -> None:
        self.llm_engine = engine

    @property
    def clock(self) -> Callable[[], float]:
        return self.llm_engine.clock

    @clock.setter
    def clock(self, clock: Callable[[], float]) -> None:
        self.llm_engine.clock = clock

    def add(self, request: Request) -> None:
        """The caller's objects are its own again: what it does to them changes no request."""
        params, prompt = request.sampling_params(), list(request.prompt)
        prediction, embeds = list(request.prediction), request.prompt_embeds()
        given: Any = {"prompt_token_ids": prompt} if embeds is None else {"prompt_embeds": embeds}
        self._add(
            request.request_id,
            {**given, "cache_salt": request.cache_salt, "prediction": prediction or None},
            params, arrival_time=request.arrival_time, priority=request.priority,
            timeout=request.timeout, lora=some_lora(request.adapter),
        )  # fmt: skip
        assert params == request.sampling_params(), "the client's own parameters have changed"
        _spoil(prompt, params)
        prediction[:] = [0]
        if embeds is not None:
            embeds[:] = np.nan

    def _add(self, *request: Any, lora: LoRARequest | None, **service: Any) -> None:
        self.llm_engine.add_request(*request, lora_request=lora, **service)

    def abort(self, request_ids: Sequence[str]) -> list[Any]:
        return self.llm_engine.abort_request(request_ids)

    def step(self) -> list[Any]:
        return self.llm_engine.step()

    def is_busy(self) -> bool:
        return self.llm_engine.has_unfinished_requests()

    def debug_state(self) -> DebugState:
        return debug_state(self.llm_engine)

    def get_metrics(self) -> list[Metric]:
        return self.llm_engine.get_metrics()


class ThroughLoop(InProcess):
    """Asks the loop, one turn at a time, and reads as a call of `LLM` does."""

    def __init__(self, engine: LLMEngine) -> None:
        super().__init__(engine)
        self._loop = EngineLoop(engine)
        self._outputs: list[AnyRequestOutput] = []

    def _add(  # type: ignore[override]
        self, name: str, prompt: Any, params: SamplingParams, *, lora: Any, **service: Any
    ) -> None:
        request = self.llm_engine.check_request(prompt, params, name, lora)
        request.serve_as(name, **service)
        with self.llm_engine.driven():
            self._loop.add([request], self)

    def take(self, updates: list[RequestUpdate]) -> None:
        """Does what `Reader.take` does."""
        self._outputs += outputs_of(updates)

    def fail(self, request_ids: list[str], error: JaxEngineError) -> None:
        """Does what `Reader.fail` does."""
        raise error

    def abort(self, request_ids: Sequence[str]) -> list[Any]:
        """The last outputs come with the next step."""
        self._loop.post(lambda: self._loop.abort(request_ids))
        return []

    def step(self) -> list[Any]:
        self._loop.post(lambda: None)  # so that a turn without requests does not wait
        self._loop.turn()
        outputs, self._outputs = self._outputs, []
        return outputs


def _spoil(prompt: list[int], params: SamplingParams) -> None:
    prompt[:] = [0]
    params.n, params.max_tokens, params.min_tokens, params.logprobs = 9, 1, 1, 7
    params.include_stop_str_in_output = not params.include_stop_str_in_output
    for one in (params.stop, params.stop_token_ids, params.logprob_token_ids):
        if isinstance(one, list):
            one.clear()


def debug_state(engine: LLMEngine) -> DebugState:
    """Between two steps."""
    scheduler, running, pipeline = engine.scheduler, engine._running, engine._pipeline
    queues = scheduler.waiting, scheduler.running, scheduler.swapped
    kept: dict[str, list[Any]] = {
        "groups": [*scheduler.groups],
        "sequences": [*scheduler._state.seq_ids],
        "requests": [*running.requests],
        "deadlines": [*range(len(running.deadlines))],
        "streaming": [*running.streaming],
        "ended": [request.request_id for request, _ in running.ended],
        "unread": engine._unread,
        "opened": [*pipeline._opened],
        "pinned adapters": [*scheduler.slots.pinned()],
        # That of another process is not seen: `tests/properties/test_runner_pair.py` looks into it
        "known to the runner": [*set(getattr(engine.worker, "setups", ())) - set(pipeline.closed)],
    }
    return DebugState(
        scheduler._limits.max_num_seqs,
        *([_group(one) for one in queue] for queue in queues),
        blocks=snapshot(scheduler.block_manager),
        stats=engine.stats(),
        kept=kept,
    )


def _group(group: SequenceGroup) -> GroupState:
    seqs = [
        SequenceState(
            one.seq_id, one.index, list(one.token_ids), one.num_computed_tokens, one.status,
            one.finish_reason,
        )
        for one in group.seqs
    ]  # fmt: skip
    return GroupState(
        group.request_id,
        group.number,
        group.key,
        group.params,
        group.part_size,
        group.forked,
        seqs,
        group.adapter,
    )


def check_idle(engine: LLMEngine) -> None:
    """I9: nothing is left of anybody."""
    assert not engine.has_unfinished_requests()
    debug_state(engine).check_idle()


def run(engine: LLMEngine) -> list[AnyRequestOutput]:
    """All that `step` returns until nobody is left."""
    outputs: list[AnyRequestOutput] = []
    while engine.has_unfinished_requests():
        outputs += engine.step()
    return outputs
