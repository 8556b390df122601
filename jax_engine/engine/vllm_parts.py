"""The attributes inside `llm_engine` that programs for vLLM use."""

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from jax_engine.config import EngineConfig
from jax_engine.engine.pooling import PooledParams
from jax_engine.engine.saved_state import save_state
from jax_engine.engine.vllm_config import vllm_config
from jax_engine.engine.vllm_processors import request_processor
from jax_engine.engine_args import EngineArgs
from jax_engine.errors import ConfigError
from jax_engine.sampling_params import SamplingParams


class VllmParts:
    """A part of `LLMEngine`."""

    config: EngineConfig
    model_source: Path

    @classmethod
    def from_config(cls, config: EngineConfig) -> Any:
        raise NotImplementedError

    @classmethod
    def from_engine_args(cls, engine_args: EngineArgs, **others: Any) -> Self:
        """`from_config` for vLLM's callers; what else they give is about its processes."""
        engine: Self = cls.from_config(engine_args.create_engine_config())
        return engine

    @cached_property
    def vllm_config(self) -> Any:
        """What vLLM's programs read of its `vllm_config`: a part of it."""
        return vllm_config(self)  # type: ignore[arg-type]

    @property
    def engine_core(self) -> Self:
        """Returns the engine itself, for programs that reach into vLLM's inner engine."""
        return self

    def save_sharded_state(
        self, path: str, pattern: str | None = None, max_size: int | None = None
    ) -> None:
        """Writes the weights, in the engine's dtype, as safetensors into a folder.

        With a copy of the model's other files beside them, load_format="sharded_state" reads them.

        Args:
            pattern: Of the files' names; None: "model-rank-{rank}-part-{part}.safetensors".
            max_size: Bytes of a file.

        Raises:
            ConfigError: There is no such folder, or the weights are random ones.
        """
        if self.config.load_format == "dummy":
            raise ConfigError(
                "save_sharded_state needs weights from files, got load_format='dummy'"
            )
        save_state(self.model_source, Path(path), self.config.dtype, pattern, max_size)

    def with_processors(self, params: SamplingParams) -> SamplingParams:
        """A copy with the engine's logits processors behind the request's own, if there are any.

        Raises:
            InvalidRequestError: A processor does not take these params.
        """
        classes = self.config.logits_processors
        if not classes or isinstance(params, PooledParams):
            return params
        added = request_processor(classes, params, self.vllm_config)
        return replace(params, logits_processors=[*(params.logits_processors or []), added])
