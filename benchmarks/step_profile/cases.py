"""The steps that are profiled, on the real engine, and the host's share of each."""

import time
from statistics import median
from typing import Any

import jax

from benchmarks.engines import SPARE, compute_prompts_without_model, timed
from benchmarks.step_profile.trace import WINDOW
from jax_engine import LLMEngine, SamplingParams

HOST = ("schedule", "prepare", "process")


class TimedSteps:
    """In the compiled steps' place: the same, timed and waited for."""

    def __init__(self, steps: Any) -> None:
        self.steps = steps
        self.seconds = 0.0
        self.shape: Any = None

    def __call__(self, shape: Any, *arguments: Any) -> Any:
        with jax.profiler.TraceAnnotation(WINDOW):
            started = time.perf_counter()
            outputs = jax.block_until_ready(self.steps(shape, *arguments))
            self.seconds = time.perf_counter() - started
        self.shape = shape
        return outputs


class Case:
    """Steps of one kind, as many as wanted.

    Args:
        sequences: How many there are.
        context: Tokens that each has in the end.
        prefill: Whether the step computes them all; else it decodes one more.
        temperature: Above 0 the sequences differ, though they begin alike: each has a seed.
    """

    def __init__(
        self,
        engine: LLMEngine,
        sequences: int,
        context: int,
        *,
        prefill: bool,
        temperature: float = 0.0,
    ) -> None:
        self.engine, self.sequences, self.context = engine, sequences, context
        self.prefill, self.temperature = prefill, temperature
        self.queries = context if prefill else 1
        self.steps = TimedSteps(engine.worker.steps)

    def run(self, count: int) -> list[dict[str, float]]:
        """Milliseconds of the host's parts, the device, and the whole, of each step."""
        engine = self.engine
        real, schedule = engine.worker.steps, engine.scheduler.schedule
        launch, clock = engine.worker.launch, dict[str, float]()
        found = []
        self._start(count)
        engine.worker.steps = self.steps  # type: ignore[assignment]
        engine.scheduler.schedule = timed(schedule, "schedule", clock)  # type: ignore
        engine.worker.launch = timed(launch, "launch", clock)  # type: ignore
        try:
            for _ in range(count):
                started = time.perf_counter()
                engine.step()
                total = time.perf_counter() - started
                found.append(self._parts(clock, total))
                if self.prefill:
                    self._stop()
                    self._start(count)
        finally:
            engine.worker.steps = real
            engine.scheduler.schedule, engine.worker.launch = schedule, launch  # type: ignore
            self._stop()
        return found

    def _parts(self, clock: dict[str, float], total: float) -> dict[str, float]:
        seconds = {
            "schedule": clock["schedule"],
            "prepare": clock["launch"] - self.steps.seconds,
            "process": total - clock["schedule"] - clock["launch"],
            "device": self.steps.seconds,
            "step": total,
        }
        return {name: 1e3 * value for name, value in seconds.items()}

    def _start(self, count: int) -> None:
        for i in range(self.sequences):
            params = SamplingParams(
                temperature=self.temperature, seed=i, max_tokens=count + SPARE, ignore_eos=True
            )
            prompt = {"prompt_token_ids": [5 + i] * self.context}
            self.engine.add_request(str(i), prompt, params)
        if not self.prefill:
            compute_prompts_without_model(self.engine)

    def _stop(self) -> None:
        self.engine.abort_request([str(i) for i in range(self.sequences)])


def medians(steps: list[dict[str, float]]) -> dict[str, float]:
    return {name: median(step[name] for step in steps) for name in steps[0]}
