"""The unfinished requests in all places that know them: they begin, and end, in all or in none."""

from collections.abc import Iterable, Sequence

from jax_engine.core.scheduler import Scheduler
from jax_engine.core.sequence import SequenceGroup
from jax_engine.engine.deadlines import Deadlines
from jax_engine.engine.mailbox import Mailbox
from jax_engine.engine.pipeline import StepPipeline
from jax_engine.engine.prompts import Prompt
from jax_engine.engine.request_checks import NewRequest
from jax_engine.engine.request_metrics import RequestRecorder
from jax_engine.engine.request_setup import request_seed, request_setup
from jax_engine.engine.request_state import RequestState
from jax_engine.errors import InvalidRequestError
from jax_engine.outputs import AnyRequestOutput, RequestMetrics
from jax_engine.sampling_params import SamplingParams
from jax_engine.tokenization.tokenizer import Tokenizer


class RunningRequests:
    """Scheduler, pipeline, states and deadlines, kept in step with each other.

    Args:
        seed: The engine's, from which requests without one draw theirs.

    Attributes:
        states: By request id.
        deadlines: Of those that have one.
        news: States with something to give out that `take_outputs` has not taken.
        recorder: Of those that have ended.
        ended: Last outputs that it has not taken, of requests without a mailbox.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        pipeline: StepPipeline,
        tokenizer: Tokenizer | None,
        eos_token_ids: frozenset[int],
        seed: int,
    ) -> None:
        self.states: dict[str, RequestState] = {}
        self.deadlines = Deadlines()
        self.news: dict[str, RequestState] = {}
        self.ended: list[AnyRequestOutput] = []
        self.recorder = RequestRecorder()
        self._scheduler = scheduler
        self._pipeline = pipeline
        self._tokenizer = tokenizer
        self._eos_token_ids = eos_token_ids
        self._seed = seed
        self._num_added = 0
        self._next_number = 0

    def group(self, request_id: str, prompt: Prompt, params: SamplingParams) -> SequenceGroup:
        """The request as the scheduler knows it."""
        return SequenceGroup(
            request_id,
            prompt.token_ids,
            params,
            eos_token_ids=self._eos_token_ids,
            cache_salt=prompt.cache_salt,
        )

    def add(self, requests: Sequence[NewRequest], now: float, mailbox: Mailbox | None) -> None:
        """Accepts all of them or, whatever is raised in the middle, none.

        Raises:
            InvalidRequestError: An id is already running.
        """
        number, groups = self._num_added, list[SequenceGroup]()
        try:
            for one in requests:
                self._add(one, now, mailbox, groups)
        except BaseException:
            while groups:
                self._take_back(groups.pop())
            self._num_added = number
            raise

    def _add(
        self, new: NewRequest, now: float, mailbox: Mailbox | None, groups: list[SequenceGroup]
    ) -> None:
        """Appends the group to `groups` before anything keeps it, so that it can be taken back."""
        request_id, request = new.request_id, new.checked
        if request_id in self.states:
            raise InvalidRequestError(f"request_id {request_id!r} is already running: use another")
        arrival = now if new.arrival_time is None else new.arrival_time
        prompt, params, constraints = request.prompt, request.params, request.constraints
        group = self.group(request_id, prompt, params)
        group.arrival_time, group.priority = arrival, new.priority
        group.needs_last_token = constraints is not None and constraints.needs_last_token
        group.needs_history = params.has_penalties
        group.number = self._next_number
        self._next_number += 1  # of one that is taken back, too: nobody has its number again
        metrics = RequestMetrics(arrival)
        state = RequestState(prompt, params, group, metrics, self._tokenizer, mailbox)
        seed = request_seed(params, self._seed, self._num_added)
        groups.append(group)
        self._scheduler.add_group(group)
        self.states[request_id] = state
        setup = request_setup(group.number, prompt.token_ids, params, seed, self._eos_token_ids)
        self._pipeline.open(setup, constraints)
        if new.timeout is not None:
            self.deadlines.add(request_id, arrival + new.timeout)
        self._num_added += 1

    def _take_back(self, group: SequenceGroup) -> None:
        """Undoes `_add`, however far it came."""
        self._scheduler.take_back(group)
        self._forget(group)

    def abort(self, request_ids: Iterable[str], now: float) -> list[AnyRequestOutput]:
        """Ends those that are running, and returns their outputs.

        The last delta of a stream goes where the others went, to `take_outputs`: the caller may
        not have read yet what the last step gave of it.
        """
        states = [self.states[one] for one in dict.fromkeys(request_ids) if one in self.states]
        for state in states:
            self._scheduler.abort(state.group.request_id)
        outputs: list[AnyRequestOutput] = []
        for state in states:
            streams = state.deltas and state.mailbox is None
            (self.ended if streams else outputs).append(self._close(state, now))
        return outputs

    def abort_all(self, mailbox: Mailbox, now: float) -> None:
        """Ends those with this mailbox."""
        ids = [request_id for request_id, one in self.states.items() if one.mailbox is mailbox]
        self.abort(ids, now)

    def end(self, request_id: str, stop_reason: str, now: float) -> None:
        """Aborts a running request for a reason of the engine's own."""
        self._scheduler.abort(request_id, stop_reason)
        self.finish(request_id, now)

    def finish(self, request_id: str, now: float) -> None:
        """Gives out the end of a request that is no longer scheduled."""
        state = self.states[request_id]
        output = self._close(state, now)
        if state.mailbox is None:
            self.ended.append(output)

    def end_all(self, error: BaseException) -> None:
        """Aborts everything, since a step raised `error`."""
        states = list(self.states.values())
        for state in states:  # before all else: whatever else fails, nobody waits for ever
            if state.mailbox is not None:
                state.mailbox.fail(error)
        self._scheduler.clear()
        for state in states:
            self._forget(state.group)
        self.ended += [state.final_output() for state in states if state.mailbox is None]

    def take_outputs(self) -> list[AnyRequestOutput]:
        """Everything new since the last call, but for requests with a mailbox.

        Ends come first: the id of one may be that of a running request again.
        """
        outputs = self.ended
        outputs += [state.request_output(finished=False) for state in self.news.values()]
        self.news, self.ended = {}, []
        return outputs

    def _close(self, state: RequestState, now: float) -> AnyRequestOutput:
        state.metrics.finished_time = now
        output = state.final_output()
        self.recorder.take(state)
        if state.mailbox is not None:
            state.mailbox.put(output)
        self._forget(state.group)
        return output

    def _forget(self, group: SequenceGroup) -> None:
        request_id = group.request_id
        self.news.pop(request_id, None)
        self.deadlines.remove(request_id)
        self._pipeline.close(group.number)
        self.states.pop(request_id, None)  # last: what is among them is forgotten again if need be
