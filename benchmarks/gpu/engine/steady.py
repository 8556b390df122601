"""Many requests with ShareGPT lengths, the number that runs held constant.

Where a request ends a new one comes, so there is no filling up and no draining in the figures. The
first ones are met somewhere in their lives, as a visitor would find them: the longer an output, the
likelier, and at any of its tokens; what was generated before stands in the prompt.
"""

import time
from itertools import count
from typing import Any

import numpy as np

from benchmarks.gpu.engine.limits import Card, step_work
from benchmarks.gpu.engine.models import Scale
from benchmarks.gpu.engine.requests import add
from benchmarks.workload import read_lengths
from jax_engine import LLMEngine, RequestOutput
from jax_engine.step import Step

SETTLE = 0.25  # of the seconds that are measured: steps before it, not measured


class Steady:
    """The engine with so many requests running, and what its steps had to do."""

    def __init__(self, engine: LLMEngine, scale: Scale) -> None:
        self.engine, self.names = engine, count()
        limit = min(scale.max_model_len, engine.max_model_len)
        lengths = np.array([pair for pair in read_lengths() if sum(pair) <= limit])
        self.rng = np.random.default_rng(0)
        self.lengths = lengths
        longer = lengths[:, 1] / lengths[:, 1].sum()
        for prompt, output in self.rng.choice(lengths, scale.running, p=longer):
            old = int(self.rng.integers(output))
            self._add(prompt + old, output - old)

    def _add(self, prompt: int, output: int) -> None:
        add(self.engine, f"steady-{next(self.names)}", int(prompt), int(output))

    def run(self, seconds: float) -> tuple[list[RequestOutput], int, float]:
        """Requests that ended, steps, and seconds that it really took."""
        done: list[RequestOutput] = []
        steps, started = 0, time.perf_counter()
        while (passed := time.perf_counter() - started) < seconds:
            for output in self.engine.step():
                if output.finished:
                    done.append(output)
                    self._add(*self.rng.choice(self.lengths))
            steps += 1
        return done, steps, passed

    def settle(self, seconds: float) -> None:
        """Until all that started the run are past their prompts, and at least so long."""
        groups = self.engine.scheduler.groups
        first = list(groups)
        self.run(seconds)
        while any(
            len(groups[name].seqs[0].token_ids) == groups[name].prompt_len
            for name in first
            if name in groups
        ):
            self.run(0.01)


def throughput(engine: LLMEngine, scale: Scale, card: Card) -> dict[str, Any]:
    """Tokens a second, latencies, and the share of the time that the card's limits explain."""
    steady = Steady(engine, scale)
    steady.settle(SETTLE * scale.steady_s)
    before, began = engine.stats(), time.monotonic()
    bounds: list[float] = []
    sampled: list[int] = []
    launch = engine.worker.launch

    def watched(step: Step) -> Any:
        sequences = [(len(row.tokens), row.end) for row in step.rows]
        bounds.append(step_work(engine.model_config, sequences).seconds(card))
        sampled.append(len(step.samples))
        return launch(step)

    engine.worker.launch = watched  # type: ignore[method-assign]
    try:
        done, steps, seconds = steady.run(scale.steady_s)
    finally:
        engine.worker.launch = launch  # type: ignore[method-assign]
    after = engine.stats()
    engine.abort_request(list(engine.scheduler.groups))
    return {
        "running": scale.running,
        "seconds": round(seconds, 2),
        "steps": steps,
        "output_tokens_per_s": round(sum(sampled) / seconds, 1),
        "all_tokens_per_s": round((after.num_tokens - before.num_tokens) / seconds, 1),
        "step_ms": round(1e3 * seconds / steps, 2),
        "bound_step_ms": round(1e3 * float(np.mean(bounds)), 2),
        "percent_of_bound": round(100 * sum(bounds) / seconds, 1),
        "preemptions": after.num_recomputed - before.num_recomputed,
        **_latencies(done, began),
    }


def _latencies(done: list[RequestOutput], began: float) -> dict[str, float]:
    """Latencies of the requests that came while it was measured: beside them all others decoded."""
    first, each = [], []
    for output in done:
        times = output.metrics
        assert times.first_token_time is not None and times.finished_time is not None
        if times.arrival_time > began:
            first.append(1e3 * (times.first_token_time - times.arrival_time))
        if len(output.outputs[0].token_ids) > 1:
            spent = times.finished_time - times.first_token_time
            each.append(1e3 * spent / (len(output.outputs[0].token_ids) - 1))
    found = {"new_prompts": float(len(first))}
    for name, values in (("time_to_first_token", first), ("time_per_output_token", each)):
        for q in (50, 99):
            found[f"{name}_p{q}_ms"] = round(float(np.percentile(values or [0.0], q)), 2)
    return found
