"""A line every few seconds about what the engine does, while it does something."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from jax_engine.errors import EngineDeadError
from jax_engine.serving.async_llm import AsyncLLM

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
