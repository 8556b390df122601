"""The engine's statistics, as `/metrics` for Prometheus and as a log line every few seconds.

The metrics have vLLM's names, and the line has vLLM's words. No line is written while the engine is
idle.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from jax_engine.errors import EngineDeadError
from jax_engine.serving.async_llm import AsyncLLM

WAIT_S = 1.0  # a long step delays the engine's answer, but not that of the server for longer
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OLD_NAMES = {  # for which older dashboards of vLLM ask
    "vllm:inter_token_latency_seconds": "vllm:time_per_output_token_seconds",
    "vllm:kv_cache_usage_perc": "vllm:gpu_cache_usage_perc",
}
GAUGES = {
    "num_requests_swapped": "num_swapped",
    "num_blocks": "num_blocks",
    "num_used_blocks": "num_used_blocks",
    "num_shared_blocks": "num_shared_blocks",
    "num_logical_blocks": "num_logical_blocks",
    "num_cached_blocks": "num_cached_blocks",
}


class MetricsPage:
    """Asks the engines, and remembers what they said last.

    Args:
        model: what clients call it; the label `model_name`, which for an engine may be a path.
        refusals: how many requests the server's queue has refused, by reason.
    """

    def __init__(self, llm: AsyncLLM, model: str, refusals: Mapping[str, int]) -> None:
        self._llm, self._refusals = llm, refusals
        self._model = model
        self._metrics: list[dict[str, Any]] = []
        self._stats: list[dict[str, Any]] = []

    async def text(self) -> bytes:
        """The page. While the engine is busy for long, with the numbers of the time before."""
        try:
            async with asyncio.timeout(WAIT_S):
                self._metrics, self._stats = await asyncio.gather(
                    self._llm.get_metrics(), self._llm.get_stats_of_engines()
                )
        except (TimeoutError, EngineDeadError):
            pass
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        registry.register(_Collected([*self._families()]))
        return generate_latest(registry)

    def _families(self) -> Iterator[Metric]:
        yield from families(self._named())
        for name, field in GAUGES.items():
            if self._stats:
                yield self._gauge(name, [stats[field] for stats in self._stats])
        yield from families(self._refused())
        yield self._gauge("num_requests_open", self._llm.num_open_requests)
        yield self._gauge("engine_alive", [float(alive) for alive in self._llm.engines_alive])

    def _named(self) -> Iterator[dict[str, Any]]:
        for metric in self._metrics:
            labels = metric["labels"] | {"model_name": self._model}
            yield metric | {"labels": labels}
            if metric["name"] in OLD_NAMES:
                yield metric | {"labels": labels, "name": OLD_NAMES[metric["name"]]}

    def _refused(self) -> Iterator[dict[str, Any]]:
        name = "vllm:admission_rejections"
        for reason, count in self._refusals.items():
            labels = {"model_name": self._model, "reason": reason}
            yield {"kind": "Counter", "name": name, "labels": labels, "value": count}

    def _gauge(self, name: str, values: Sequence[float]) -> Metric:
        """A gauge of each engine."""
        says = name.replace("_", " ")
        found = GaugeMetricFamily(f"jax_engine:{name}", says, labels=["model_name", "engine"])
        for number, value in enumerate(values):
            found.add_metric([self._model, str(number)], value)
        return found


class _Collected(Collector):
    def __init__(self, found: Iterable[Metric]) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        return self._found


def families(metrics: Iterable[dict[str, Any]]) -> Iterator[Metric]:
    """Metrics of `get_metrics`, those of one name together."""
    found: dict[str, Any] = {}
    for one in (part for metric in metrics for part in _by_position(metric)):
        name, labels = one["name"], one["labels"]
        if name not in found:
            found[name] = _family(one["kind"], name, list(labels))
        values = list(labels.values())
        if one["kind"] == "Histogram":
            found[name].add_metric(values, list(one["buckets"].items()), one["sum"])
        else:
            found[name].add_metric(values, one["value"])
    yield from found.values()


def _by_position(metric: dict[str, Any]) -> list[dict[str, Any]]:
    """A vector as counters with a label; another metric alone."""
    if metric["kind"] != "Vector":
        return [metric]
    return [
        metric | {"kind": "Counter", "labels": metric["labels"] | {"position": str(i)}, "value": n}
        for i, n in enumerate(metric["values"])
    ]


def _family(kind: str, name: str, labels: list[str]) -> Metric:
    says = name.partition(":")[2].replace("_", " ")
    if kind == "Histogram":
        return HistogramMetricFamily(name, says, labels=labels)
    if kind == "Counter":
        return CounterMetricFamily(name, says, labels=labels)
    return GaugeMetricFamily(name, says, labels=labels)


logger = logging.getLogger("jax_engine")
_PROMPT, _GENERATION = "vllm:prompt_tokens", "vllm:generation_tokens"
_QUERIES, _HITS = "vllm:prefix_cache_queries", "vllm:prefix_cache_hits"


class StatsLog:
    """Compares the engine's counters with those of the line before.

    Args:
        now: when the engine began to count, in seconds of `time.monotonic()`.
    """

    def __init__(self, now: float) -> None:
        self._time = now
        self._before: Mapping[str, float] = {}
        self._hit_rate = 0.0
        self._was_busy = False

    def line(self, metrics: Iterable[dict[str, Any]], now: float) -> str | None:
        """The line, in vLLM's words; None while nothing runs. One of zeros ends a busy time.

        Args:
            metrics: what `AsyncLLM.get_metrics` gives; those of several engines are added up.
        """
        values = Counter[str]()
        engines = set[str]()
        for one in metrics:
            if "value" in one:
                values[one["name"]] += one["value"]
                engines.add(one["labels"]["engine"])
        seconds = max(now - self._time, 1e-9)
        grown = {
            name: values[name] - self._before.get(name, 0)
            for name in (_PROMPT, _GENERATION, _QUERIES, _HITS)
        }
        self._time, self._before = now, values
        if grown[_QUERIES]:
            self._hit_rate = grown[_HITS] / grown[_QUERIES]
        running, waiting = values["vllm:num_requests_running"], values["vllm:num_requests_waiting"]
        usage = values["vllm:kv_cache_usage_perc"] / len(engines)
        busy = bool(running or waiting or grown[_PROMPT] or grown[_GENERATION])
        self._was_busy, was_busy = busy, self._was_busy
        if not (busy or was_busy):
            return None
        return (
            f"Avg prompt throughput: {grown[_PROMPT] / seconds:.1f} tokens/s, "
            f"Avg generation throughput: {grown[_GENERATION] / seconds:.1f} tokens/s, "
            f"Running: {running} reqs, Waiting: {waiting} reqs, "
            f"GPU KV cache usage: {100 * usage:.1f}%, "
            f"Prefix cache hit rate: {100 * self._hit_rate:.1f}%"
        )


async def log_stats(llm: AsyncLLM, interval: float) -> None:
    """Writes lines until the engine ends."""
    log = StatsLog(time.monotonic())
    while llm.is_running:
        await asyncio.sleep(interval)
        try:
            metrics = await llm.get_metrics()
        except EngineDeadError:
            return
        line = log.line(metrics, time.monotonic())
        if line is not None:
            logger.info("%s", line)
