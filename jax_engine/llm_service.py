"""The methods of `LLM` that concern the whole engine, not a request."""

import os
from typing import Any

import jax

from jax_engine.engine.llm_engine import LLMEngine
from jax_engine.errors import ConfigError
from jax_engine.metrics import Metric
from jax_engine.profiler_config import profile_folder


class ServiceMethods:
    """A part of `LLM`."""

    llm_engine: LLMEngine

    def get_tokenizer(self) -> Any:
        """The model's tokenizer as Hugging Face's `PreTrainedTokenizerFast`, made when first used.

        Raises:
            InvalidRequestError: The engine was built without a tokenizer.
        """
        return self.llm_engine.get_tokenizer()

    def get_metrics(self) -> list[Metric]:
        """Gauges, counters and histograms with vLLM's names, since the engine was built.

        Queues, KV usage and preemptions are current; tokens, prefix cache hits, finish reasons and
        latencies count requests that have ended.
        """
        return self.llm_engine.get_metrics()

    def reset_prefix_cache(
        self, reset_running_requests: bool = False, reset_connector: bool = False
    ) -> bool:
        """Forgets all cached blocks; returns False and does nothing while requests are running.

        Args:
            reset_running_requests: Also forget blocks of running requests, and compute them again.
            reset_connector: No effect; for compatibility with vLLM.
        """
        return self.llm_engine.reset_prefix_cache(reset_running_requests)

    def start_profile(self, profile_prefix: str | None = None) -> None:
        """Records what the device and the host do, until `stop_profile`.

        The trace is for TensorBoard or https://ui.perfetto.dev. It is written to the folder of
        `EngineConfig.profiler_config`, else of the environment variable VLLM_TORCH_PROFILER_DIR,
        else to ./jax_profile; if `profile_prefix` is given, to that folder within it.

        Raises:
            ConfigError: A profile is running already.
        """
        folder = profile_folder(self.llm_engine.config.profiler_config)
        if profile_prefix is not None:
            folder = os.path.join(folder, str(profile_prefix))
        try:
            jax.profiler.start_trace(folder)
        except RuntimeError as error:
            raise ConfigError(f"start_profile: {error}") from error

    def stop_profile(self) -> None:
        """Writes the profile.

        Raises:
            ConfigError: No profile is running.
        """
        try:
            jax.profiler.stop_trace()
        except RuntimeError as error:
            raise ConfigError(f"stop_profile: {error}") from error
