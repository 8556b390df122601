"""jax-engine: LLM inference with a paged KV cache and continuous batching on JAX.

    from jax_engine import LLM, SamplingParams
    outputs = LLM().generate(["The capital of France is"], SamplingParams(temperature=0))

Names are imported when first used: the controller (`jax_engine.core`) needs no JAX, and whoever
imports only that does not wait for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jax_engine.beam_search_params import BeamSearchParams
    from jax_engine.config import EngineConfig
    from jax_engine.engine.llm_engine import LLMEngine
    from jax_engine.errors import (
        ConfigError,
        ForkedProcessError,
        InvalidRequestError,
        JaxEngineError,
        MissingPackageError,
        ModelNotFoundError,
        OutOfMemoryError,
        RequestTooLargeError,
        StepFailedError,
        WeightsError,
    )
    from jax_engine.llm import LLM
    from jax_engine.outputs import (
        BeamSearchOutput,
        BeamSearchSequence,
        CompletionOutput,
        EmbeddingRequestOutput,
        Logprob,
        RequestOutput,
    )
    from jax_engine.pooling_params import PoolingParams
    from jax_engine.sampling_params import RequestOutputKind, SamplingParams
    from jax_engine.structured_outputs import StructuredOutputsParams

_MODULES = {
    "LLM": "llm",
    "LLMEngine": "engine.llm_engine",
    "EngineConfig": "config",
    "SamplingParams": "sampling_params",
    "PoolingParams": "pooling_params",
    "StructuredOutputsParams": "structured_outputs",
    "RequestOutputKind": "sampling_params",
    "BeamSearchParams": "beam_search_params",
    "BeamSearchOutput": "outputs",
    "BeamSearchSequence": "outputs",
    "RequestOutput": "outputs",
    "CompletionOutput": "outputs",
    "EmbeddingRequestOutput": "outputs",
    "Logprob": "outputs",
    "JaxEngineError": "errors",
    "ConfigError": "errors",
    "InvalidRequestError": "errors",
    "MissingPackageError": "errors",
    "ModelNotFoundError": "errors",
    "OutOfMemoryError": "errors",
    "RequestTooLargeError": "errors",
    "WeightsError": "errors",
    "StepFailedError": "errors",
    "ForkedProcessError": "errors",
}

__all__ = [
    "LLM",
    "BeamSearchOutput",
    "BeamSearchParams",
    "BeamSearchSequence",
    "CompletionOutput",
    "ConfigError",
    "EmbeddingRequestOutput",
    "EngineConfig",
    "ForkedProcessError",
    "InvalidRequestError",
    "JaxEngineError",
    "LLMEngine",
    "Logprob",
    "MissingPackageError",
    "ModelNotFoundError",
    "OutOfMemoryError",
    "PoolingParams",
    "RequestOutput",
    "RequestOutputKind",
    "RequestTooLargeError",
    "SamplingParams",
    "StepFailedError",
    "StructuredOutputsParams",
    "WeightsError",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
