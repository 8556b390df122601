"""What random engines and random requests on the tiny Llama look like; and how they are served."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from tests.support.builders import Pool
from tests.support.engine_pair import MAX_LEN
from tests.support.engine_under_test import Request
from tests.support.side_by_side import Served, SideBySide
from tests.support.strategies import GivenCosts
from tests.support.tiny_llama import VOCAB

# Each entry costs a set of compiled steps. All but the last are small enough to preempt.
PENALISED, SCORED, WINDOWED = Pool(3, 17), Pool(1, 48), Pool(8, 9, sliding_window=5)
POOLS = [PENALISED, SCORED, Pool(16, 6), WINDOWED, Pool(128, 5)]

# Samples, and beams: more than MAX_SEQS samples take turns, more beams would be refused.
COUNTS = {False: [1, 2, 3, 6], True: [1, 2, 3]}
LONGEST_PROMPT = 26
# How a request is aborted: between two steps, or while somebody looks at the outputs of one.
BETWEEN, IN_OUTPUTS = "between steps", "in a step's outputs"


@dataclass(frozen=True)
class Abort:
    """A request is aborted `after` so many steps, by these means."""

    after: int
    means: str = BETWEEN


type Aborts = dict[int, Abort]  # by the place in the workload
type Failures = dict[int, str]  # where a step raises, by the number of the first that may


@st.composite
def scheduler_settings(draw: st.DrawFn) -> dict[str, Any]:
    scheduling = draw(st.sampled_from(["unified", "unified", "sosp", "sosp-mixed"]))
    unified = scheduling == "unified"
    chunked = unified and draw(st.booleans())
    return {
        "scheduling": scheduling,
        "enable_chunked_prefill": chunked,
        "prefix_caching": unified and draw(st.booleans()),
        "async_scheduling": draw(st.booleans()),
        "max_num_batched_tokens": draw(st.sampled_from([4, 9, MAX_LEN])) if chunked else MAX_LEN,
        "long_prefill_token_threshold": draw(st.sampled_from([0, 3])) if chunked else 0,
        "num_cpu_blocks": draw(st.sampled_from([0, 6, 60])),
        "policy": draw(st.sampled_from(["fcfs", "priority"])),
    } | draw(preemption_settings())


@st.composite
def preemption_settings(draw: st.DrawFn) -> dict[str, Any]:
    mode = draw(st.sampled_from([None, "recompute", "swap", "auto"]))
    if mode != "auto":
        return {"preemption_mode": mode}
    costs = GivenCosts(draw(st.sampled_from([0.1, 1.0, 3.0])))
    return {"preemption_mode": mode, "preemption_costs": costs}


@st.composite
def workloads(draw: st.DrawFn) -> list[Request]:
    """Prompts that share beginnings, greedy and sampled, one sample and several; conversations."""
    stem = draw(st.lists(st.integers(3, VOCAB - 1), min_size=20, max_size=20))
    requests: list[Request] = []
    crowded = draw(st.booleans())
    for i in range(draw(st.integers(4 if crowded else 2, 7))):
        prompt = stem[: draw(st.integers(1, 20))]
        prompt += draw(st.lists(st.integers(0, VOCAB - 1), max_size=6))
        after = draw(st.none() | st.integers(0, i - 1)) if i else None
        step = draw(st.sampled_from([0, 0, 0, 1, 4]))
        arrival = draw(st.sampled_from([0.0, 1.0, 2.0]))
        if crowded and i < 4:  # long ones, all at once: the pools must run out
            prompt, step, after = prompt + stem[:8], 0, None
        reused = after is not None and draw(st.booleans())
        request_id = requests[after].request_id if reused else str(i)
        priority = draw(st.integers(0, 1))
        requests.append(Request(
            request_id, prompt, draw(sampling_params(crowded)), step, arrival, priority,
            cache_salt=draw(st.sampled_from([None, None, "a", "b"])), after=after,
        ))  # fmt: skip
    return requests


@st.composite
def sampling_params(draw: st.DrawFn, long: bool = False) -> dict[str, Any]:
    """Arguments of `SamplingParams`."""
    beams = draw(st.integers(0, 3)) == 0
    greedy = beams or draw(st.booleans())
    n = 1 if greedy and not beams else draw(st.sampled_from(COUNTS[beams]))
    best_of = draw(st.sampled_from([None, None, n, n + 1]))
    return {
        "temperature": draw(st.sampled_from([0.0, 0.0, 1e-6])) if greedy else 1.3,
        "n": n,
        "best_of": None if greedy else best_of,
        "use_beam_search": beams,
        "length_penalty": draw(st.sampled_from([1.0, 0.0, 2.0, -0.5])) if beams else 1.0,
        "early_stopping": draw(st.sampled_from([False, True, "never"])) if beams else False,
        "top_k": draw(st.sampled_from([0, -1] if greedy else [0, -1, 5])),
        "repetition_penalty": draw(st.sampled_from([1.0, 1.2])),
        "max_tokens": draw(st.sampled_from([12, 16] if long else [1, 5, 12, 16])),
        "min_tokens": draw(st.integers(0, 1)),
        "ignore_eos": long or draw(st.booleans()),
        "seed": draw(st.none() | st.integers(-2, 5)),
        "logprobs": None if beams else draw(st.sampled_from([None, 0, 3])),
        "prompt_logprobs": draw(st.sampled_from([None, None, None, 0, 2])),
    }


@st.composite
def aborts(draw: st.DrawFn) -> Aborts:
    moments = st.builds(
        Abort, st.sampled_from([0, 0, 1, 2, 3, 5, 8, 13]), st.sampled_from([BETWEEN, IN_OUTPUTS])
    )
    return draw(st.dictionaries(st.integers(0, 6), moments, max_size=4))


def suited(request: Request, pool: Pool, settings: dict[str, Any]) -> Request:
    """What has compiled steps of its own in one pool only: penalties, the prompt's logprobs."""
    if settings.get("policy") != "priority":
        request = replace(request, priority=0)
    plain: dict[str, Any] = {}
    if pool is not PENALISED:
        plain |= {"repetition_penalty": 1.0, "min_tokens": 0}
    if pool is not SCORED:
        plain |= {"prompt_logprobs": None}
    return replace(request, given={**request.given, **plain})


class Service:
    """Serves a workload to its end: adds and aborts as planned."""

    def __init__(
        self,
        pair: SideBySide,
        workload: Sequence[Request],
        plan: Aborts,
        failures: Failures | None = None,
        *,
        longest_prompt: int = LONGEST_PROMPT,
    ) -> None:
        self.pair = pair
        self.plan = plan
        self.failures = failures or {}
        self.longest_prompt = longest_prompt
        self.waiting = dict(enumerate(workload))
        self.served: dict[int, Served | None] = {}  # None was refused

    def run(self) -> None:
        while self.waiting or self.pair.running:
            self.add_those_due()
            place = self.failures.get(self.pair.now)
            self.pair.step(lambda: self.due(IN_OUTPUTS), fail_at=place)
            for request_id in self.due(BETWEEN):
                self.pair.abort(request_id)
        self.pair.finish()

    def add_those_due(self) -> None:
        for place, request in list(self.waiting.items()):
            if self._is_due(request):
                del self.waiting[place]
                self.served[place] = self.pair.add(self._following(request))
                if self.plan.get(place) == Abort(0) and self.served[place]:
                    self.pair.abort(request.request_id)

    def due(self, means: str) -> list[str]:
        """The ids to abort by now; who has ended is not looked for any more."""
        planned = [
            (self.served.get(place), abort.after)
            for place, abort in self.plan.items()
            if abort.means == means
        ]
        return [
            served.request.request_id
            for served, after in planned
            if served and served.runs and self.pair.now - served.added >= after
        ]

    def _is_due(self, request: Request) -> bool:
        if request.after is None:
            return request.step <= self.pair.now
        if request.after not in self.served:
            return False
        before = self.served[request.after]
        return before is None or not before.runs

    def _following(self, request: Request) -> Request:
        """The request, with the conversation so far before its own prompt."""
        before = None if request.after is None else self.served[request.after]
        if before is None:
            return request
        said: list[int] = []
        if before.output is not None:
            said = [token for one in before.output.outputs[:1] for token in one.token_ids]
        prompt = [*before.request.prompt, *said, *request.prompt]
        return replace(
            request, prompt=prompt[: self.longest_prompt], arrival_time=float(self.pair.now)
        )
