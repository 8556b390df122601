"""The parts of vLLM's `llm_engine.vllm_config` that its programs read."""

from types import SimpleNamespace
from typing import Any

from jax_engine.engine.build import EngineParts
from jax_engine.file_schema import read_json
from jax_engine.models.hf_overrides import overridden


def vllm_config(engine: EngineParts) -> SimpleNamespace:
    """`model_config` with `hf_config`, `cache_config`, `scheduler_config`: to be read only.

    Args:
        engine: Its parts, or the `LLMEngine` itself, whose attributes have the same names.
    """
    config, model = engine.config, engine.model_config
    return SimpleNamespace(
        model_config=SimpleNamespace(
            model=config.model,
            tokenizer=config.tokenizer or config.model,
            max_model_len=engine.max_model_len,
            dtype=config.dtype,
            seed=config.seed,
            hf_config=_hf_config(engine),
            get_vocab_size=lambda: model.vocab_size,
            get_hidden_size=lambda: model.hidden_size,
        ),
        cache_config=SimpleNamespace(
            block_size=config.block_size,
            num_gpu_blocks=engine.memory.num_blocks,
            enable_prefix_caching=config.prefix_caching,
        ),
        scheduler_config=SimpleNamespace(
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=engine.scheduler.max_num_batched_tokens,
        ),
        speculative_config=config.speculative_config,
    )


def _hf_config(engine: EngineParts) -> SimpleNamespace:
    """The fields of config.json; of a GGUF file, which has none, only the labels."""
    raw: dict[str, Any] = {}
    if engine.model_source.is_dir():
        raw = overridden(read_json(engine.model_source / "config.json"), engine.config.hf_overrides)
    labels = () if engine.head is None else engine.head.config.labels
    return SimpleNamespace(**{**raw, "id2label": dict(enumerate(labels))})
