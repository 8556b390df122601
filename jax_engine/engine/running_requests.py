"""The unfinished requests, which all components that keep requests add and remove together.

The runner is told of a request once: `request_setup` packs its sampling parameters. `Deadlines`
finds the earliest deadline at once, however many requests there are.
"""

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush

import numpy as np
from jaxtyping import Float, Int32

from jax_engine.core.scheduler import Scheduler
from jax_engine.core.scheduler_output import SchedulerOutput
from jax_engine.engine.pipeline import StepPipeline
from jax_engine.engine.pooling.pooling import PooledParams
from jax_engine.engine.requests.request import Request, RequestUpdate
from jax_engine.engine.stats import RequestRecorder
from jax_engine.errors import InvalidRequestError
from jax_engine.sampling.sampling_inputs import sampling_row
from jax_engine.sampling_params import SamplingParams
from jax_engine.step import RequestSetup

_FEW = 64  # entries of finished requests that are not worth a clean-up


class Deadlines:
    """Request ids ordered by deadline: constant work per step, logarithmic work per request."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str]] = []
        self._numbers: dict[str, int] = {}  # number of an id's newest entry: ids are reused
        self._num_added = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, request_id: str, deadline: float) -> None:
        """Adds an id that has no deadline yet."""
        self._num_added += 1
        self._numbers[request_id] = self._num_added
        heappush(self._heap, (deadline, self._num_added, request_id))

    def remove(self, request_id: str) -> None:
        """Forgets an id, if it has a deadline."""
        self._numbers.pop(request_id, None)
        if len(self._heap) > 2 * len(self._numbers) + _FEW:
            self._heap = [entry for entry in self._heap if self._counts(entry)]
            heapify(self._heap)

    def expired(self, now: float) -> list[str]:
        """Takes out the ids whose deadline is `now` or earlier, soonest first."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            entry = heappop(self._heap)
            if self._counts(entry):
                del self._numbers[entry[2]]
                found.append(entry[2])
        return found

    def _counts(self, entry: tuple[float, int, str]) -> bool:
        return self._numbers.get(entry[2]) == entry[1]


_MASK = 2**64 - 1


def request_setup(
    number: int,
    prompt_token_ids: list[int],
    params: SamplingParams,
    seed: int,
    eos_token_ids: frozenset[int],
    token_type_ids: list[int] | None = None,
    embeds: Float[np.ndarray, "n E"] | None = None,
) -> RequestSetup:
    """Packs a request's parameters; sample i draws with `derive_seed(seed, i)`.

    Args:
        number, token_type_ids, embeds: See `RequestSetup`.
    """
    rows = [sampling_row(params, derive_seed(seed, i)) for i in range(params.num_samples)]
    bias = params.logit_bias or {}
    ends = sorted(eos_token_ids | set(params.stop_token_ids or ()))
    pooling = params.pooling if isinstance(params, PooledParams) else None
    return RequestSetup(
        number,
        prompt_token_ids,
        np.stack(rows),
        bias=_entries(list(bias), list(bias.values())),
        forbidden=_entries(ends, [-np.inf] * len(ends)),
        min_tokens=params.min_tokens,
        edits_logits=bool(bias) or params.min_tokens > 0 or params.has_penalties,
        has_penalties=params.has_penalties,
        wants_logprobs=params.needs_logprobs,
        needs_logits=params.needs_logits,
        prompt_logprobs=params.prompt_logprobs,
        pooling=pooling is not None,
        token_states=pooling is not None and pooling.needs_tokens,
        token_type_ids=token_type_ids,
        embeds=embeds,
        is_special=params.needs_logits
        or params.prompt_logprobs is not None
        or pooling is not None
        or embeds is not None,
    )


def request_seed(params: SamplingParams, engine_seed: int, number: int) -> int:
    """The request's own seed, or one drawn for the number-th request of an engine."""
    if params.seed is not None:
        return params.seed
    return int(np.random.SeedSequence([engine_seed, number]).generate_state(1, np.uint64)[0])


def derive_seed(seed: int, sample: int) -> int:
    """The seed of a request's i-th sample: its own for i = 0, else SplitMix64's i-th output.

    A single request with that seed draws the same tokens (I37). One bit is dropped so that the
    result is a valid `SamplingParams.seed` everywhere.
    """
    if sample == 0:
        return seed & _MASK
    mixed = (seed + sample * 0x9E3779B97F4A7C15) & _MASK
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = ((mixed ^ (mixed >> shift)) * factor) & _MASK
    return (mixed ^ (mixed >> 31)) >> 1


def _entries(tokens: list[int], values: list[float]) -> Int32[np.ndarray, "2 entries"]:
    bits = np.array(values, np.float32).view(np.int32)
    return np.stack([np.array(tokens, np.int32), bits])


class RunningRequests:
    """Keeps the requests of scheduler, pipeline and deadlines consistent.

    Args:
        seed: The engine's seed, from which requests without a seed get theirs.
        num_speculative_tokens: As in `RequestRecorder`.

    Attributes:
        requests: By request id.
        deadlines: Deadlines of the requests that have one.
        streaming: Requests with something new that `take_updates` has not taken.
        recorder: Metrics of the requests that have ended.
        ended: Last outputs that `take_updates` has not taken.
        lost: Last outputs of the requests that a failed step aborted.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        pipeline: StepPipeline,
        eos_token_ids: frozenset[int],
        seed: int,
        num_speculative_tokens: int = 0,
    ) -> None:
        self.requests: dict[str, Request] = {}
        self.deadlines = Deadlines()
        self.streaming: dict[str, Request] = {}
        self.ended: list[RequestUpdate] = []
        self.lost: list[RequestUpdate] = []
        self.recorder = RequestRecorder(num_speculative_tokens)
        self._unplanned: dict[str, Request] = {}
        self._scheduler = scheduler
        self._pipeline = pipeline
        self._eos_token_ids = eos_token_ids
        self._seed = seed
        self._num_added = 0
        self._next_number = 0

    def add(self, requests: Sequence[Request], now: float) -> None:
        """Accepts all requests, or none if anything is raised.

        Raises:
            InvalidRequestError: An id is already running.
        """
        number, added = self._num_added, list[Request]()
        try:
            for request in requests:
                self._add(request, now, added)
        except BaseException:
            while added:
                self._take_back(added.pop())
            self._num_added = number
            raise

    def _add(self, request: Request, now: float, added: list[Request]) -> None:
        """Appends the request to `added` before any component keeps it, so it can be taken back."""
        request_id, group, params = request.request_id, request.group, request.params
        if request_id in self.requests:
            raise InvalidRequestError(f"request_id {request_id!r} is already running: use another")
        arrival = request.arrive(now)
        request.metrics.queued_time = now
        group.number = self._next_number
        self._next_number += 1  # never reused, even if this request is taken back
        order = self._num_added if request.order is None else request.order
        seed = request_seed(params, self._seed, order)
        added.append(request)
        self._scheduler.add_group(group)
        self.requests[request_id] = self._unplanned[request_id] = request
        prompt, ends = request.prompt, self._eos_token_ids
        more = prompt.token_type_ids, prompt.embeds
        self._pipeline.open(
            request_setup(group.number, prompt.token_ids, params, seed, ends, *more)
        )
        if request.timeout is not None:
            self.deadlines.add(request_id, arrival + request.timeout)
        self._num_added += 1

    def _take_back(self, request: Request) -> None:
        """Undoes `_add`, even one that was interrupted halfway."""
        self._scheduler.take_back(request.group)
        self._forget(request)

    def abort(self, request_ids: Iterable[str], now: float) -> list[RequestUpdate]:
        """Aborts those of the requests that are unfinished, and returns their last outputs.

        A stream's last delta goes to `take_updates` instead, like its other deltas: the caller may
        not have read the last step's delta yet.
        """
        ids = dict.fromkeys(request_ids)
        requests = [self.requests[one] for one in ids if one in self.requests]
        for request in requests:
            self._scheduler.abort(request.request_id)
        found: list[RequestUpdate] = []
        for request in requests:
            deltas = request.params.gives_deltas
            (self.ended if deltas else found).append(self._close(request, now))
        return found

    def end(self, request_id: str, stop_reason: str, now: float) -> None:
        """Aborts an unfinished request, with the engine's reason."""
        self._scheduler.abort(request_id, stop_reason)
        self.finish(request_id, now)

    def finish(self, request_id: str, now: float) -> None:
        """Delivers the last outputs of a request that the scheduler has ended."""
        self.ended.append(self._close(self.requests[request_id], now))

    def end_all(self) -> None:
        """Aborts everything, since a step has failed."""
        requests = list(self.requests.values())
        self._scheduler.clear()
        for request in requests:
            self._forget(request)
        self.recorder.take_failed(len(requests))
        self.lost = [(one, one.core_output(finished=True)) for one in requests]

    def note_planned(self, plan: SchedulerOutput, planned_at: float) -> None:
        """Notes when the requests of a step were planned that no step before computed."""
        if not self._unplanned:
            return
        for item in plan.scheduled:
            request = self._unplanned.get(item.group.request_id)
            if request is not None and request.group is item.group:
                del self._unplanned[request.request_id]
                request.metrics.scheduled_time = planned_at
                self.recorder.take_planned(request)

    def note_drafts(self, plan: SchedulerOutput, accepted: Mapping[int, int]) -> None:
        """Counts what a step verified; `accepted` has the right drafts of sequences, by seq_id."""
        for item in plan.scheduled:
            request = self.requests.get(item.group.request_id) if item.drafts else None
            if request is not None and request.group is item.group:
                right = accepted.get(item.seq.seq_id, 0)
                self.recorder.take_drafts(request, len(item.drafts), right)

    def take_updates(self) -> list[RequestUpdate]:
        """What is new in each request since the last call.

        Last outputs come first: a running request may have reused the id of an ended one.
        """
        found = self.ended
        found += [(one, one.core_output(finished=False)) for one in self.streaming.values()]
        self.streaming, self.ended = {}, []
        return found

    def _close(self, request: Request, now: float) -> RequestUpdate:
        request.metrics.finished_time = now
        request.metrics.last_token_time = request.last_token_time
        last = request, request.core_output(finished=True)
        self.recorder.take(request)
        self._forget(request)
        return last

    def _forget(self, request: Request) -> None:
        request_id = request.request_id
        self.streaming.pop(request_id, None)
        self._unplanned.pop(request_id, None)
        self.deadlines.remove(request_id)
        self._pipeline.close(request.group.number)
        # Last: a request that is still in `requests` can be forgotten once more
        self.requests.pop(request_id, None)
