"""Counts and times of steps and requests, for `LLM.get_metrics`.

Tokens are counted in the step that they come in, requests when they end.
"""

from collections import Counter as Tally
from collections.abc import Iterator

from jax_engine.engine.request import Request
from jax_engine.engine.stats import EngineStats
from jax_engine.engine.step_outputs import TakenStep
from jax_engine.metrics import Counter, Gauge, Metric, Observations, Vector

# Upper limits of the histograms' buckets, vLLM's: seconds to the first token, between two tokens,
# and of a request; numbers of tokens of a request, and of a step; samples of a request, and how
# often it was preempted
FIRST_TOKEN = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10,
               20, 40, 80, 160, 640, 2560)  # fmt: skip
BETWEEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20,
           40, 80)  # fmt: skip
WHOLE = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920,
         7680)  # fmt: skip
TOKENS = tuple(float(digit * 10**power) for power in range(6) for digit in (1, 2, 5))
STEP_TOKENS = (1, *(2**power for power in range(3, 15)))
SAMPLES = (1, 2, 5, 10, 20)
PREEMPTIONS = (1, 2, 3, 4, 5, 10, 20)
LIMITS = {
    "time_to_first_token_seconds": FIRST_TOKEN,
    "inter_token_latency_seconds": BETWEEN,
    "request_time_per_output_token_seconds": BETWEEN,
    "e2e_request_latency_seconds": WHOLE,
    "request_queue_time_seconds": WHOLE,
    "request_inference_time_seconds": WHOLE,
    "request_prefill_time_seconds": WHOLE,
    "request_decode_time_seconds": WHOLE,
    "request_prompt_tokens": TOKENS,
    "request_generation_tokens": TOKENS,
    "request_max_num_generation_tokens": TOKENS,
    "request_params_n": SAMPLES,
    "request_params_max_tokens": TOKENS,
    "request_num_preemptions": PREEMPTIONS,
    "iteration_tokens_total": STEP_TOKENS,
}
TOTALS = ("prompt_tokens", "generation_tokens", "prefix_cache_queries", "prefix_cache_hits")
DRAFTS = (
    "spec_decode_num_drafts",
    "spec_decode_num_draft_tokens",
    "spec_decode_num_accepted_tokens",
)
REASONS = ("stop", "length", "abort", "error")


class RequestRecorder:
    """Adds up what happens. The engine hands over each step, and each end of a request, once.

    Args:
        num_speculative_tokens: The most drafts of a sequence in a step; 0: there are no drafts.
    """

    def __init__(self, num_speculative_tokens: int = 0) -> None:
        self._accepted = [0] * num_speculative_tokens  # by position
        self._totals: Tally[str] = Tally()
        self._reasons: Tally[str] = Tally()
        self._seen = {name: Observations(limits) for name, limits in LIMITS.items()}

    def take_planned(self, request: Request) -> None:
        """Takes a request that a step computes for the first time."""
        group = request.group
        if group.reads_cache:
            self._totals["prefix_cache_queries"] += group.prompt_len
            self._totals["prefix_cache_hits"] += group.num_cached_tokens or 0

    def take_step(self, num_tokens: int, taken: TakenStep, now: float) -> None:
        """Takes a step that gave its tokens at `now`."""
        self._seen["iteration_tokens_total"].add(num_tokens)
        self._totals["generation_tokens"] += taken.num_generated
        between = self._seen["inter_token_latency_seconds"]
        for before, count in Tally(taken.before).items():  # most tokens follow on the same step
            between.add(now - before, count)
        for request in taken.first:
            self._totals["prompt_tokens"] += request.group.prompt_len
            waited = now - request.metrics.arrival_time
            self._seen["time_to_first_token_seconds"].add(waited)

    def take_drafts(self, request: Request, num_drafts: int, num_accepted: int) -> None:
        """Takes what a step verified of one sequence."""
        request.metrics.num_draft_tokens += num_drafts
        request.metrics.num_accepted_tokens += num_accepted
        for name, count in zip(DRAFTS, (1, num_drafts, num_accepted), strict=True):
            self._totals[name] += count
        for position in range(num_accepted):
            self._accepted[position] += 1

    def take(self, request: Request) -> None:
        """Takes a request that has ended."""
        group, params = request.group, request.params
        generated = request.results.num_generated
        if not request.results.counts_samples:
            self._totals["generation_tokens"] += generated
        self._reasons[group.seqs[0].finish_reason or "abort"] += 1
        longest = max(seq.output_len for seq in group.seqs) if generated else 0
        self._add("request_prompt_tokens", group.prompt_len)
        self._add("request_generation_tokens", generated)
        self._add("request_max_num_generation_tokens", longest)
        self._add("request_num_preemptions", group.num_preemptions)
        self._add("request_params_n", params.n)
        self._add("request_params_max_tokens", params.max_tokens)
        for name, seconds in _durations(request, longest):
            self._add(name, seconds)

    def take_failed(self, count: int) -> None:
        """Takes requests that ended because a step failed."""
        self._reasons["error"] += count

    def _add(self, name: str, value: float | None) -> None:
        if value is not None:
            self._seen[name].add(value)

    def total(self, name: str) -> int:
        """The current value of one of `TOTALS`."""
        assert name in TOTALS
        return self._totals[name]

    def metrics(self, stats: EngineStats, model: str) -> list[Metric]:
        """The current values of all metrics."""
        labels = {"model_name": model, "engine": "0"}
        waiting = stats.num_waiting + stats.num_swapped
        gauges = {
            "num_requests_running": stats.num_running,
            "num_requests_waiting": waiting,
            "kv_cache_usage_perc": stats.num_used_blocks / stats.num_blocks,
        }
        totals = {
            "num_preemptions": stats.num_recomputed + stats.num_swapped_out,
            **{name: self._totals[name] for name in TOTALS},
        }
        # Nothing defers a request but that there is no room: in slots for adapters, too.
        by_reason = {"capacity": waiting, "deferred": 0}
        return [
            *(Gauge(f"vllm:{name}", labels, value) for name, value in gauges.items()),
            *(
                Gauge("vllm:num_requests_waiting_by_reason", labels | {"reason": one}, count)
                for one, count in by_reason.items()
            ),
            *(Counter(f"vllm:{name}", labels, value) for name, value in totals.items()),
            *(
                Counter("vllm:request_success", labels | {"finished_reason": one}, count)
                for one, count in ((reason, self._reasons[reason]) for reason in REASONS)
            ),
            *self._of_drafts(labels),
            *(seen.histogram(f"vllm:{name}", labels) for name, seen in self._seen.items()),
        ]

    def _of_drafts(self, labels: dict[str, str]) -> list[Metric]:
        """None of an engine without drafts, as in vLLM."""
        if not self._accepted:
            return []
        by_position = Vector(
            "vllm:spec_decode_num_accepted_tokens_per_pos", labels, list(self._accepted)
        )
        return [
            *(Counter(f"vllm:{name}", labels, self._totals[name]) for name in DRAFTS),
            by_position,
        ]


def _durations(request: Request, longest: int) -> Iterator[tuple[str, float | None]]:
    """The times of a request that has ended; None: of a part that it did not reach.

    Args:
        longest: Output tokens of its longest sequence.
    """
    times = request.metrics
    first, last, planned = times.first_token_time, times.last_token_time, times.scheduled_time
    decode = _between(first, last)
    yield "e2e_request_latency_seconds", _between(times.arrival_time, times.finished_time)
    yield "request_queue_time_seconds", _between(times.queued_time, planned)
    yield "request_prefill_time_seconds", _between(planned, first)
    yield "request_decode_time_seconds", decode
    yield "request_inference_time_seconds", _between(planned, last)
    if decode is not None and longest > 1:
        yield "request_time_per_output_token_seconds", decode / (longest - 1)


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else end - start
