"""jax-engine: LLM inference with a paged KV cache and continuous batching on JAX.

    from jax_engine import LLM, SamplingParams
    outputs = LLM().generate(["The capital of France is"], SamplingParams(temperature=0))
"""

from jax_engine.config import EngineConfig
from jax_engine.engine.llm_engine import LLMEngine
from jax_engine.errors import (
    ConfigError,
    InvalidRequestError,
    JaxEngineError,
    ModelNotFoundError,
    OutOfMemoryError,
    RequestTooLargeError,
    WeightsError,
)
from jax_engine.llm import LLM
from jax_engine.outputs import CompletionOutput, Logprob, RequestOutput
from jax_engine.sampling_params import RequestOutputKind, SamplingParams

__all__ = [
    "LLM",
    "CompletionOutput",
    "ConfigError",
    "EngineConfig",
    "InvalidRequestError",
    "JaxEngineError",
    "LLMEngine",
    "Logprob",
    "ModelNotFoundError",
    "OutOfMemoryError",
    "RequestOutput",
    "RequestOutputKind",
    "RequestTooLargeError",
    "SamplingParams",
    "WeightsError",
]
