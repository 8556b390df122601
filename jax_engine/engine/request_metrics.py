"""Counts and times of the requests that have ended, for `LLM.get_metrics`."""

from collections import Counter as Tally

from jax_engine.engine.request import Request
from jax_engine.engine.stats import EngineStats
from jax_engine.metrics import Counter, Gauge, Metric, Observations

# Upper limits of the histograms' buckets, vLLM's: seconds to the first token, seconds to the end,
# and numbers of tokens
FIRST_TOKEN = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10,
               20, 40, 80, 160, 640, 2560)  # fmt: skip
WHOLE = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920,
         7680)  # fmt: skip
TOKENS = tuple(float(digit * 10**power) for power in range(6) for digit in (1, 2, 5))
TOTALS = (
    "vllm:prompt_tokens",
    "vllm:generation_tokens",
    "vllm:prefix_cache_queries",
    "vllm:prefix_cache_hits",
)
REASONS = ("stop", "length", "abort")


class RequestRecorder:
    """Adds up the requests that have ended. The engine hands over each of them once."""

    def __init__(self) -> None:
        self._totals: Tally[str] = Tally()
        self._reasons: Tally[str] = Tally()
        self._seen = {
            "vllm:time_to_first_token_seconds": Observations(FIRST_TOKEN),
            "vllm:e2e_request_latency_seconds": Observations(WHOLE),
            "vllm:request_prompt_tokens": Observations(TOKENS),
            "vllm:request_generation_tokens": Observations(TOKENS),
        }

    def take(self, request: Request) -> None:
        group, times = request.group, request.metrics
        generated = request.results.num_generated
        self._totals["vllm:prompt_tokens"] += group.prompt_len
        self._totals["vllm:generation_tokens"] += generated
        if group.reads_cache:
            self._totals["vllm:prefix_cache_queries"] += group.prompt_len
            self._totals["vllm:prefix_cache_hits"] += group.num_cached_tokens or 0
        self._reasons[group.seqs[0].finish_reason or "abort"] += 1
        self._seen["vllm:request_prompt_tokens"].add(group.prompt_len)
        self._seen["vllm:request_generation_tokens"].add(generated)
        if times.first_token_time is not None:
            waited = times.first_token_time - times.arrival_time
            self._seen["vllm:time_to_first_token_seconds"].add(waited)
        if times.finished_time is not None:
            self._seen["vllm:e2e_request_latency_seconds"].add(
                times.finished_time - times.arrival_time
            )

    def total(self, name: str) -> int:
        """The current value of one of `TOTALS`."""
        return self._totals[name]

    def metrics(self, stats: EngineStats, model: str) -> list[Metric]:
        """The current values of all metrics."""
        labels = {"model_name": model, "engine": "0"}
        gauges = {
            "vllm:num_requests_running": stats.num_running,
            "vllm:num_requests_waiting": stats.num_waiting + stats.num_swapped,
            "vllm:kv_cache_usage_perc": stats.num_used_blocks / stats.num_blocks,
        }
        totals = {
            "vllm:num_preemptions": stats.num_recomputed + stats.num_swapped_out,
            **{name: self._totals[name] for name in TOTALS},
        }
        return [
            *(Gauge(name, labels, value) for name, value in gauges.items()),
            *(Counter(name, labels, value) for name, value in totals.items()),
            *(
                Counter("vllm:request_success", labels | {"finished_reason": one}, count)
                for one, count in ((reason, self._reasons[reason]) for reason in REASONS)
            ),
            *(seen.histogram(name, labels) for name, seen in self._seen.items()),
        ]
