"""jax-engine: LLM inference with a paged KV cache and continuous batching on JAX.

    from jax_engine import LLM, SamplingParams
    outputs = LLM().generate(["The capital of France is"], SamplingParams(temperature=0))

Names are imported when first used: the controller (`jax_engine.core`) needs no JAX, and importing
it alone does not load JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jax_engine.config.engine_args import AsyncEngineArgs, EngineArgs
    from jax_engine.config.engine_config import EngineConfig
    from jax_engine.engine.llm_engine import LLMEngine
    from jax_engine.errors import (
        ConfigError,
        EngineDeadError,
        EngineInUseError,
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
    from jax_engine.inputs import EmbedsPrompt, PromptType, TextPrompt, TokensPrompt
    from jax_engine.llm import LLM
    from jax_engine.lora.request import LoRARequest
    from jax_engine.outputs import (
        BeamSearchOutput,
        BeamSearchSequence,
        ClassificationOutput,
        ClassificationRequestOutput,
        CompletionOutput,
        EmbeddingOutput,
        EmbeddingRequestOutput,
        FlatLogprobs,
        Logprob,
        PoolingOutput,
        PoolingRequestOutput,
        RequestOutput,
        ScoringOutput,
        ScoringRequestOutput,
    )
    from jax_engine.pooling_params import PoolingParams
    from jax_engine.sampling_params import (
        BeamSearchParams,
        RequestOutputKind,
        SamplingParams,
        StructuredOutputsParams,
    )
    from jax_engine.serving.async_llm import AsyncLLM, AsyncLLMEngine

_MODULES = {
    "LLM": "llm",
    "AsyncLLM": "serving.async_llm",
    "AsyncLLMEngine": "serving.async_llm",
    "AsyncEngineArgs": "config.engine_args",
    "LLMEngine": "engine.llm_engine",
    "EngineArgs": "config.engine_args",
    "EngineConfig": "config.engine_config",
    "EmbedsPrompt": "inputs",
    "PromptType": "inputs",
    "TextPrompt": "inputs",
    "TokensPrompt": "inputs",
    "SamplingParams": "sampling_params",
    "PoolingParams": "pooling_params",
    "StructuredOutputsParams": "sampling_params",
    "RequestOutputKind": "sampling_params",
    "BeamSearchParams": "sampling_params",
    "BeamSearchOutput": "outputs",
    "BeamSearchSequence": "outputs",
    "RequestOutput": "outputs",
    "CompletionOutput": "outputs",
    "ClassificationOutput": "outputs",
    "ClassificationRequestOutput": "outputs",
    "EmbeddingOutput": "outputs",
    "EmbeddingRequestOutput": "outputs",
    "PoolingOutput": "outputs",
    "PoolingRequestOutput": "outputs",
    "ScoringOutput": "outputs",
    "ScoringRequestOutput": "outputs",
    "FlatLogprobs": "outputs",
    "Logprob": "outputs",
    "LoRARequest": "lora.request",
    "JaxEngineError": "errors",
    "ConfigError": "errors",
    "InvalidRequestError": "errors",
    "MissingPackageError": "errors",
    "ModelNotFoundError": "errors",
    "OutOfMemoryError": "errors",
    "RequestTooLargeError": "errors",
    "WeightsError": "errors",
    "StepFailedError": "errors",
    "EngineDeadError": "errors",
    "EngineInUseError": "errors",
    "ForkedProcessError": "errors",
}

__all__ = [
    "LLM",
    "AsyncEngineArgs",
    "AsyncLLM",
    "AsyncLLMEngine",
    "BeamSearchOutput",
    "BeamSearchParams",
    "BeamSearchSequence",
    "ClassificationOutput",
    "ClassificationRequestOutput",
    "CompletionOutput",
    "ConfigError",
    "EmbeddingOutput",
    "EmbeddingRequestOutput",
    "EmbedsPrompt",
    "EngineArgs",
    "EngineConfig",
    "EngineDeadError",
    "EngineInUseError",
    "FlatLogprobs",
    "ForkedProcessError",
    "InvalidRequestError",
    "JaxEngineError",
    "LLMEngine",
    "LoRARequest",
    "Logprob",
    "MissingPackageError",
    "ModelNotFoundError",
    "OutOfMemoryError",
    "PoolingOutput",
    "PoolingParams",
    "PoolingRequestOutput",
    "PromptType",
    "RequestOutput",
    "RequestOutputKind",
    "RequestTooLargeError",
    "SamplingParams",
    "ScoringOutput",
    "ScoringRequestOutput",
    "StepFailedError",
    "StructuredOutputsParams",
    "TextPrompt",
    "TokensPrompt",
    "WeightsError",
    "__version__",
    "__version_tuple__",
    "inputs",
]


def __getattr__(name: str) -> Any:
    if name in ("__version__", "__version_tuple__"):
        return _version()[name]
    if name == "inputs":
        return import_module(f"{__name__}.inputs")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def _version() -> dict[str, Any]:
    """The installed distribution's version; "0+unknown" in a bare checkout."""
    from importlib import metadata

    try:
        version = metadata.version("jax-engine")
    except metadata.PackageNotFoundError:
        version = "0+unknown"
    numbers = tuple(int(part) for part in version.split("+")[0].split(".") if part.isdigit())
    return {"__version__": version, "__version_tuple__": numbers}
