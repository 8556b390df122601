"""The methods of `LLMEngine` that look at it and change nothing."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from jax_engine.config import EngineConfig
from jax_engine.core.scheduler import Scheduler
from jax_engine.engine.cache_info import cache_config_info
from jax_engine.engine.engine_lock import EngineLock
from jax_engine.engine.engine_state import EngineState, engine_state
from jax_engine.engine.pipeline import StepPipeline
from jax_engine.engine.running_requests import RunningRequests
from jax_engine.engine.stats import EngineStats, StatsRecorder
from jax_engine.errors import InvalidRequestError
from jax_engine.metrics import Metric
from jax_engine.tokenization.tokenizer import Tokenizer


class EngineViews:
    """A part of `LLMEngine`."""

    config: EngineConfig
    max_model_len: int
    model_source: Path
    tokenizer: Tokenizer | None
    lock: EngineLock
    clock: Callable[[], float]
    scheduler: Scheduler
    _pipeline: StepPipeline
    _running: RunningRequests
    _stats: StatsRecorder

    def get_tokenizer(self) -> Any:
        """Hugging Face's `PreTrainedTokenizerFast`, made when first used.

        Raises:
            InvalidRequestError: The engine was built without a tokenizer.
        """
        return self.text_tokenizer().hugging_face

    def text_tokenizer(self) -> Tokenizer:
        """The engine's own tokenizer. Raises InvalidRequestError if it has none."""
        if self.tokenizer is None:
            raise InvalidRequestError("the engine has no tokenizer (skip_tokenizer_init=True)")
        return self.tokenizer

    def stats(self) -> EngineStats:
        """Current queues and KV blocks, and counters since the start."""
        with self.lock:
            return replace(self._stats.now(), guided_seconds=self._pipeline.mask_seconds)

    def state(self) -> EngineState:
        """What happens at this moment: requests, queues, and the map of all KV blocks."""
        with self.lock:
            return engine_state(self.scheduler, self._running, self.clock())

    def get_metrics(self) -> list[Metric]:
        """As `LLM.get_metrics`."""
        model = self.config.model or str(self.model_source)
        with self.lock:
            return [
                *self._running.recorder.metrics(self.stats(), model),
                cache_config_info(self.config, self.stats().num_blocks, self.max_model_len),
            ]
