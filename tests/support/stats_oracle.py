"""Gauges, counters and metrics worked out from the oracle's state, beside the engine's (I51)."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from jax_engine import RequestOutput
from jax_engine.engine.stats import EngineStats, Metric
from reference.engine import ReferenceEngine
from reference.sequence import SequenceGroup


class StatsOracle:
    """Looks at the oracle's blocks in each step, when the step has its blocks."""

    def __init__(self, reference: ReferenceEngine) -> None:
        self.counts: Counter[str] = Counter()
        self.used: list[int] = [0]
        self.shared: list[int] = [0]
        self.logical: list[int] = [0]
        self._reference = reference
        schedule = reference.scheduler.schedule

        def watched() -> Any:
            unfinished = reference.has_unfinished_requests()
            output = schedule()
            if unfinished:
                self._note(output)
            return output

        reference.scheduler.schedule = watched  # type: ignore[method-assign]

    def _note(self, output: Any) -> None:
        self.counts["steps"] += 1
        self.counts["tokens"] += output.num_batched_tokens
        refs = self._reference.block_manager.gpu.ref_counts
        self.used.append(sum(ref > 0 for ref in refs))
        self.shared.append(sum(ref > 1 for ref in refs))
        self.logical.append(sum(refs))

    @property
    def savings(self) -> list[float]:
        pairs = zip(self.used, self.logical, strict=True)
        return [1 - used / logical for used, logical in pairs if logical] or [0.0]


def check_stats(
    stats: EngineStats, metrics: Sequence[Metric], reference: ReferenceEngine, seen: StatsOracle
) -> None:
    """All of `EngineStats`, after any step."""
    scheduler, blocks = reference.scheduler, reference.block_manager
    refs = blocks.gpu.ref_counts
    wanted = {
        "num_waiting": len(scheduler.waiting),
        "num_running": len(scheduler.running),
        "num_swapped": len(scheduler.swapped),
        "num_blocks": len(refs),
        "num_used_blocks": sum(ref > 0 for ref in refs),
        "num_shared_blocks": sum(ref > 1 for ref in refs),
        "num_logical_blocks": sum(refs),
        "num_free_blocks": blocks.num_free_gpu_blocks,
        "num_cached_blocks": blocks.num_cached_blocks,
        "peak_used_blocks": max(seen.used),
        "peak_shared_blocks": max(seen.shared),
        "num_steps": seen.counts["steps"],
        "num_tokens": seen.counts["tokens"],
        "num_recomputed": scheduler.num_preemptions["recompute"],
        "num_swapped_out": scheduler.num_preemptions["swap"],
    }
    assert {name: getattr(stats, name) for name in wanted} == wanted, "I51"
    saving = 1 - sum(seen.used) / sum(seen.logical) if any(seen.logical) else 0
    assert abs(stats.mean_sharing_saving - saving) < 1e-9
    found: dict[Any, Any] = {_key(metric): metric for metric in metrics}
    gauges = {
        "vllm:num_requests_running": wanted["num_running"],
        "vllm:num_requests_waiting": wanted["num_waiting"] + wanted["num_swapped"],
        "vllm:kv_cache_usage_perc": wanted["num_used_blocks"] / len(refs),
        "vllm:num_preemptions": sum(scheduler.num_preemptions.values()),
    }
    assert {name: found[name].value for name in gauges} == gauges, "I51"
    steps = found["vllm:iteration_tokens_total"]
    assert (steps.count, steps.sum) == (seen.counts["steps"], seen.counts["tokens"]), "I51"
    assert abs(stats.peak_sharing_saving - max(0.0, *seen.savings)) < 1e-9


def check_metrics(
    metrics: Sequence[Metric],
    served: Sequence[tuple[SequenceGroup, RequestOutput]],
    cut_short: set[str],
) -> None:
    """What `get_metrics` says of requests that have ended, as their outputs have it.

    Args:
        cut_short: Those that may have ended before the oracle's did, by the oracle's ids.
    """
    wanted: Counter[Any] = Counter()
    waits: list[float] = []
    lives: list[float] = []
    unknown = False  # what became of a sample of best_of that is not returned
    for group, output in served:
        early = group.request_id in cut_short
        times = output.metrics
        if times.first_token_time is not None:
            wanted["vllm:prompt_tokens"] += group.prompt_len
        wanted["vllm:generation_tokens"] += _num_generated(group, output, early)
        unknown |= early and group.num_samples > group.params.n
        wanted["vllm:request_success", _reason(group, output, early)] += 1
        if group.reads_cache and times.scheduled_time is not None:
            wanted["vllm:prefix_cache_queries"] += group.prompt_len
            wanted["vllm:prefix_cache_hits"] += output.num_cached_tokens
        if times.first_token_time is not None:
            waits.append(times.first_token_time - times.arrival_time)
        assert times.finished_time is not None
        lives.append(times.finished_time - times.arrival_time)
    found: dict[Any, Any] = {_key(metric): metric for metric in metrics}
    for key, value in wanted.items():
        of_samples = key == "vllm:generation_tokens" or isinstance(key, tuple)
        assert (unknown and of_samples) or found[key].value == value, f"I51: {key}"
    _check_sums(found, served, wanted, cut_short, unknown=unknown)
    for name, values in (
        ("vllm:time_to_first_token_seconds", waits),
        ("vllm:e2e_request_latency_seconds", lives),
        ("vllm:request_prompt_tokens", [group.prompt_len for group, _ in served]),
        ("vllm:request_params_n", [group.params.n for group, _ in served]),
        (
            "vllm:request_params_max_tokens",
            [one.params.max_tokens for one, _ in served if one.params.max_tokens is not None],
        ),
        ("vllm:request_queue_time_seconds", _spans(served, "queued_time", "scheduled_time")),
        ("vllm:request_prefill_time_seconds", _spans(served, "scheduled_time", "first_token_time")),
        ("vllm:request_decode_time_seconds", _spans(served, "first_token_time", "last_token_time")),
        (
            "vllm:request_inference_time_seconds",
            _spans(served, "scheduled_time", "last_token_time"),
        ),
    ):
        _check_histogram(found[name], values)


def _spans(served: Sequence[tuple[Any, Any]], start: str, end: str) -> list[float]:
    """Times between two events, of the requests that have both."""
    pairs = [(getattr(one.metrics, start), getattr(one.metrics, end)) for _, one in served]
    return [last - first for first, last in pairs if first is not None and last is not None]


def _check_sums(
    found: dict[Any, Any],
    served: Sequence[tuple[SequenceGroup, RequestOutput]],
    wanted: Counter[Any],
    cut_short: set[str],
    *,
    unknown: bool,
) -> None:
    """What follows from other numbers: each token but a sequence's first has one before it."""
    ends = sum(count for key, count in wanted.items() if isinstance(key, tuple))
    generated = found["vllm:request_generation_tokens"]
    assert generated.count == ends == len(served), "I51"
    assert generated.sum == found["vllm:generation_tokens"].value, "I51"
    preempted = found["vllm:request_num_preemptions"]
    assert preempted.count == ends, "I51"
    assert preempted.sum == found["vllm:num_preemptions"].value, "I51: all requests have ended"
    longest = found["vllm:request_max_num_generation_tokens"]
    assert longest.count == ends and longest.sum <= generated.sum, "I51"
    if unknown or any(group.beam_search for group, _ in served):
        return
    between = found["vllm:inter_token_latency_seconds"]
    lengths: list[int] = []
    for group, output in served:
        if group.request_id in cut_short:
            lengths += [len(one.token_ids) for one in output.outputs]
        else:
            lengths += [seq.output_len for seq in group.seqs]
    assert between.count == sum(length - 1 for length in lengths if length), "I51"
    if all(group.num_samples == 1 for group, _ in served):
        decodes = _spans(served, "first_token_time", "last_token_time")
        assert between.sum == sum(decodes), "I51: from the first token to the last"


def _check_histogram(found: Any, values: Sequence[float]) -> None:
    assert (found.count, found.sum) == (len(values), sum(values)), f"I51: {found.name}"
    counts = {limit: sum(value <= float(limit) for value in values) for limit in found.buckets}
    assert found.buckets == counts, f"I51: {found.name}"


def _reason(group: SequenceGroup, output: RequestOutput, early: bool) -> str:
    """The reason of the first sample, whether or not that sample is returned."""
    if not early:
        return group.seqs[0].finish_reason or "abort"
    reasons = [one.finish_reason for one in output.outputs if one.index == 0]
    return (reasons[0] if reasons else None) or "abort"


def _num_generated(group: SequenceGroup, output: RequestOutput, early: bool) -> int:
    """Tokens of all samples, including those of best_of that are not returned."""
    if not early:
        return sum(seq.output_len for seq in group.seqs)
    return sum(len(one.token_ids) for one in output.outputs)


def _key(metric: Metric) -> Any:
    reason = metric.labels.get("finished_reason")
    return metric.name if reason is None else (metric.name, reason)
