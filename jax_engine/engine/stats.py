"""The statistics of an engine: gauges and counters for `LLM.get_metrics`, under vLLM's names.

Metrics have vLLM's types (`Gauge`, `Counter`, `Vector`, `Histogram`). Gauges say how queues, KV
blocks and adapters stand. Counters say what has happened so far: steps, preemptions, requests and
their times. Tokens are counted in the step that they come in, requests when they end.

Some metrics have labels that are what there is to know: the settings of the KV cache, and which
adapters are in use. Names of adapters are what clients chose, and two requests may mean two
versions by one name. Digests of weights and scaling tell versions apart, as the slots and the
prefix cache do.
"""

from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from jax_engine.config.engine_config import EngineConfig
from jax_engine.core.adapter_slots import AdapterSlots
from jax_engine.core.scheduler import Scheduler
from jax_engine.core.scheduler_output import SchedulerOutput
from jax_engine.engine.pipeline import TakenStep
from jax_engine.engine.requests.request import Request
from jax_engine.engine.startup.device_settings import resolve_cache_dtype
from jax_engine.kv_store.folder_store import FolderStore, StoreStats
from jax_engine.step import PreemptionCosts


@dataclass
class Metric:
    """A metric: its name and its labels.

    Attributes:
        name: vLLM's name.
        labels: The model, and labels that tell metrics of one name apart.
    """

    name: str
    labels: dict[str, str]


@dataclass
class Counter(Metric):
    """A number that only grows."""

    value: int


@dataclass
class Vector(Metric):
    """Counters by position, 0 first."""

    values: list[int]


@dataclass
class Gauge(Metric):
    """A number that goes up and down."""

    value: float


@dataclass
class Histogram(Metric):
    """A distribution of observed values.

    Attributes:
        count: Number of values.
        sum: Sum of the values.
        buckets: Upper limit, as text, to the number of values at most that; "+Inf" counts all.
    """

    count: int
    sum: float
    buckets: dict[str, int]


@dataclass
class Observations:
    """A histogram that is being filled; `limits` are its buckets' upper limits, ascending."""

    limits: Sequence[float]
    counts: list[int] = field(init=False)
    sum: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.limits) + 1)

    def add(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.limits, value)] += times
        self.sum += value * times

    def histogram(self, name: str, labels: dict[str, str]) -> Histogram:
        buckets, total = {}, 0
        names = [*(str(float(limit)) for limit in self.limits), "+Inf"]
        for limit, count in zip(names, self.counts, strict=True):
            total += count
            buckets[limit] = total
        return Histogram(name, labels, total, self.sum, buckets)


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Current queues and blocks, and counters since the engine was built.

    Attributes:
        num_waiting: Requests not yet running, or preempted by recompute.
        num_running: Requests whose KV is on the device.
        num_swapped: Requests whose KV is in host memory.
        num_blocks: KV blocks in all; used + free.
        num_used_blocks: Referenced by at least one sequence.
        num_shared_blocks: Referenced by more than one.
        num_logical_blocks: Blocks of all block tables: used blocks if nothing were shared.
        num_free_blocks: Referenced by none (they may hold cached prefixes).
        num_cached_blocks: Findable by the prefix cache, used or free.
        peak_used_blocks: The most blocks used in any step.
        peak_shared_blocks: The most blocks shared in any step.
        mean_sharing_saving: Share of the blocks that sharing saved, in [0, 1): 1 - used / logical
            blocks, both summed over all steps (Figure 15 of the paper).
        peak_sharing_saving: The largest of any step.
        num_steps: Steps run.
        num_tokens: Tokens computed, recomputed ones included.
        num_recomputed: Preemptions by recompute.
        num_swapped_out: Preemptions by swap.
        preemption_costs: The costs that preemption_mode="auto" compares; None before the first
            preemption.
        guided_seconds: Host time spent on computing allowed tokens (constraints), most of it while
            the device computes.
        kv_cache_dir: What went into the folder `kv_cache_dir` and came from it; None without one.
    """

    num_waiting: int
    num_running: int
    num_swapped: int
    num_blocks: int
    num_used_blocks: int
    num_shared_blocks: int
    num_logical_blocks: int
    num_free_blocks: int
    num_cached_blocks: int
    peak_used_blocks: int
    peak_shared_blocks: int
    mean_sharing_saving: float
    peak_sharing_saving: float
    num_steps: int
    num_tokens: int
    num_recomputed: int
    num_swapped_out: int
    preemption_costs: PreemptionCosts | None
    guided_seconds: float = 0.0
    kv_cache_dir: StoreStats | None = None


class StatsRecorder:
    """Counts step by step; reads gauges from the scheduler, and from the store, on demand."""

    def __init__(self, scheduler: Scheduler, store: FolderStore | None = None) -> None:
        self._scheduler, self._store = scheduler, store
        self._num_steps = 0
        self._num_tokens = 0
        self._peak_used = 0
        self._peak_shared = 0
        self._sum_used = 0
        self._sum_logical = 0
        self._peak_saving = 0.0

    def record(self, plan: SchedulerOutput) -> None:
        """Call after a step ran and before its finished sequences free their blocks."""
        blocks = self._scheduler.block_manager.gpu
        self._num_steps += 1
        self._num_tokens += plan.num_batched_tokens
        used, logical = blocks.num_blocks - blocks.num_free, blocks.num_refs
        self._sum_used += used
        self._sum_logical += logical
        self._peak_saving = max(self._peak_saving, _saving(used, logical))
        self._peak_used = max(self._peak_used, used)
        self._peak_shared = max(self._peak_shared, blocks.num_shared)

    def now(self) -> EngineStats:
        scheduler, blocks = self._scheduler, self._scheduler.block_manager
        preemptions = scheduler.num_preemptions
        return EngineStats(
            num_waiting=len(scheduler.waiting),
            num_running=len(scheduler.running),
            num_swapped=len(scheduler.swapped),
            num_blocks=blocks.num_gpu_blocks,
            num_used_blocks=blocks.num_used_gpu_blocks,
            num_shared_blocks=blocks.num_shared_blocks,
            num_logical_blocks=blocks.num_logical_blocks,
            num_free_blocks=blocks.num_free_gpu_blocks,
            num_cached_blocks=blocks.num_cached_blocks,
            peak_used_blocks=self._peak_used,
            peak_shared_blocks=self._peak_shared,
            mean_sharing_saving=_saving(self._sum_used, self._sum_logical),
            peak_sharing_saving=self._peak_saving,
            num_steps=self._num_steps,
            num_tokens=self._num_tokens,
            num_recomputed=preemptions["recompute"],
            num_swapped_out=preemptions["swap"],
            preemption_costs=scheduler.preemption_costs,
            kv_cache_dir=None if self._store is None else replace(self._store.stats),
        )


def _saving(used: int, logical: int) -> float:
    return 1.0 - used / logical if logical else 0.0


SETTINGS = (
    "block_size",
    "gpu_memory_utilization",
    "kv_cache_memory_bytes",
    "num_gpu_blocks_override",
    "swap_space",
)


def cache_config_info(config: EngineConfig, num_gpu_blocks: int, max_model_len: int) -> Gauge:
    """vLLM's gauge whose labels are the settings of the KV cache; its value is 1.

    `kv_cache_max_concurrency` is how many requests of full length fit.
    """
    size = num_gpu_blocks * config.block_size
    labels = {name: str(getattr(config, name)) for name in SETTINGS}
    labels |= {
        "cache_dtype": resolve_cache_dtype(config).name,
        "enable_prefix_caching": str(config.prefix_caching),
        "engine": "0",
        "num_gpu_blocks": str(num_gpu_blocks),
        "kv_cache_size_tokens": str(size),
        "kv_cache_max_concurrency": str(size / max_model_len),
    }
    return Gauge("vllm:cache_config_info", labels, 1)


def lora_requests_info(max_loras: int, requests: Iterable[Request], now: float) -> Gauge:
    """vLLM's gauge: the names of the adapters of requests that run, and of those that wait.

    Beside its labels are those of the adapters' digests.

    Args:
        requests: All unfinished ones.
        now: Seconds since the epoch, its value.
    """
    names: dict[bool, set[str]] = {True: set(), False: set()}  # of those that run, and wait
    digests: dict[bool, set[str]] = {True: set(), False: set()}
    for one in requests:
        if one.lora is not None and one.group.adapter is not None:
            runs = bool(one.group.adapter_slot)
            names[runs].add(one.lora.lora_name)
            digests[runs].add(one.group.adapter.digest)
    labels = {
        "max_lora": str(max_loras),
        "running_lora_adapters": _listed(names[True]),
        "waiting_lora_adapters": _listed(names[False]),
        "running_lora_digests": _listed(digests[True]),
        "waiting_lora_digests": _listed(digests[False]),
    }
    return Gauge("vllm:lora_requests_info", labels, now)


def lora_slots(slots: AdapterSlots) -> list[Gauge]:
    """How many running requests use each slot that holds an adapter, which its digest names."""
    pinned = slots.pinned()
    return [
        Gauge(
            "jax_engine:lora_slot_requests",
            {"slot": str(slot), "digest": digest},
            pinned.get(digest, 0),
        )
        for digest, slot in sorted(slots.held().items(), key=lambda one: one[1])
    ]


def _listed(names: set[str]) -> str:
    return ",".join(sorted(names))


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
EXTERNAL = ("external_prefix_cache_queries", "external_prefix_cache_hits")
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
            found, loaded = group.num_cached_tokens or 0, group.num_loaded_tokens
            self._totals["prefix_cache_hits"] += found - loaded
            self._totals["external_prefix_cache_queries"] += group.prompt_len - found + loaded
            self._totals["external_prefix_cache_hits"] += loaded

    def take_step(self, num_tokens: int, taken: TakenStep, now: float) -> None:
        """Takes a step that gave its tokens at `now`."""
        self._seen["iteration_tokens_total"].add(num_tokens)
        self._totals["generation_tokens"] += taken.num_first + len(taken.before)
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
            *self._of_folder(stats.kv_cache_dir, labels),
            *(seen.histogram(f"vllm:{name}", labels) for name, seen in self._seen.items()),
        ]

    def _of_folder(self, found: StoreStats | None, labels: dict[str, str]) -> list[Metric]:
        """None of an engine without `kv_cache_dir`; the last two names are not vLLM's."""
        if found is None:
            return []
        counted = {
            **{f"vllm:{name}": self._totals[name] for name in EXTERNAL},
            "vllm:kv_offload_load_bytes": found.bytes_loaded,
            "vllm:kv_offload_store_bytes": found.bytes_stored,
            "vllm:kv_offload_stores_skipped": found.stores_skipped,
            "jax_engine:kv_cache_dir_failures": found.failures,
        }
        return [
            *(Counter(name, labels, value) for name, value in counted.items()),
            Gauge("jax_engine:kv_cache_dir_bytes", labels, found.num_bytes),
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
