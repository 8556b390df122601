"""Engines to measure: SmolLM2, a tiny model of random weights, and one whose model never runs.

A stubbed engine does all that Python does in a step. Its tokens are made up.
"""

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jax_engine import LLM, EngineConfig, LLMEngine
from jax_engine.sampling.sampler import SamplerOutput
from jax_engine.worker.step_output import StepOutput

MAX_MODEL_LEN = 2048
SPARE = 48  # tokens of output for requests that decode while the last prompts are taken in
MODEL: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 49152,
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "max_position_embeddings": MAX_MODEL_LEN,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
}


class StubbedSteps:
    """In the compiled steps' place: token 7 for everybody, at once."""

    def __init__(self, engine: LLMEngine) -> None:
        self._max_rows = engine.worker.steps.max_rows

    def __call__(self, shape: Any, kv_cache: Any, *plan: Any) -> tuple[Any, Any]:
        tokens = np.full(self._max_rows, 7, np.int32)
        return kv_cache, StepOutput(SamplerOutput(tokens, tokens, tokens, tokens, tokens))  # type: ignore


def dummy_engine(model: dict[str, Any] = MODEL, **settings: Any) -> LLMEngine:
    """An engine around a model of random weights, a tiny one; `settings` as in `EngineConfig`.

    It has no tokenizer, and takes one step at a time unless asked otherwise, so that the parts of
    a step add up.
    """
    settings = {"async_scheduling": False, "swap_space": 0} | settings
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(model))
        config = EngineConfig(
            model=folder, load_format="dummy", skip_tokenizer_init=True, **settings
        )
        return LLMEngine.from_config(config)


def stubbed_engine(**settings: Any) -> LLMEngine:
    """The same with its model never run."""
    engine = dummy_engine(**settings)
    engine.worker.steps = StubbedSteps(engine)  # type: ignore[assignment]
    return engine


def smollm2_engine(smoke: bool, **settings: Any) -> LLMEngine:
    """An engine around SmolLM2; in smoke runs, around the tiny model."""
    return dummy_engine(**settings) if smoke else LLM(**settings).llm_engine


def write_kv_cache(engine: LLMEngine) -> None:
    """Ones to all blocks: on a CPU those that nobody wrote take no memory, and no time to read."""
    kv_cache = engine.worker.kv_cache
    kv_cache.array = jax.jit(lambda cache: cache + 1, donate_argnums=0)(kv_cache.array)


def compute_prompts_without_model(engine: LLMEngine) -> None:
    """Steps until every request decodes, the model stubbed out: the cache stays as it is."""
    real: Any = engine.worker.steps
    engine.worker.steps = StubbedSteps(engine)  # type: ignore[assignment]
    try:
        while _has_prompts(engine):
            engine.step()
    finally:
        engine.worker.steps = real


def _has_prompts(engine: LLMEngine) -> bool:
    """Whether a prompt is not computed yet."""
    groups = engine.scheduler.groups.values()
    return any(len(seq.token_ids) == group.prompt_len for group in groups for seq in group.seqs)


def timed(function: Callable[..., Any], name: str, clock: dict[str, float]) -> Callable[..., Any]:
    """The function; `clock[name]` is set to the seconds of its latest call."""

    def call(*arguments: Any) -> Any:
        started = time.perf_counter()
        result = function(*arguments)
        clock[name] = time.perf_counter() - started
        return result

    return call
