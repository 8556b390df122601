"""Builds the runner of an encoder, and says which settings an encoder has no use for."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from jax_engine.config.engine_config import EngineConfig
from jax_engine.core.admission import Limits
from jax_engine.engine.startup.device_settings import needs_invariant_kernels, resolve_dtype
from jax_engine.errors import ConfigError
from jax_engine.models.model_loader import ModelFiles
from jax_engine.operations import memory_bytes
from jax_engine.tokenization.tokenizer import Tokenizer
from jax_engine.worker.encoder_runner import EncoderRunner
from jax_engine.worker.memory import MemoryProfile

_REFUSED = (
    "enable_lora",
    "enable_prefix_caching",
    "enable_chunked_prefill",
    "speculative_config",
    "enable_prompt_embeds",
)


def limits_of_encoder(config: EngineConfig, model_limit: int) -> Limits:
    """The limits of an encoder's steps, each of which has room for the longest prompt.

    Raises:
        ConfigError: A setting needs a KV cache, or a decoder.
    """
    for name in _REFUSED:
        if getattr(config, name):
            raise ConfigError(
                f"{name} must be left out for an encoder, which reads whole prompts and keeps "
                f"nothing of them, got {getattr(config, name)!r}"
            )
    if needs_invariant_kernels(config):
        raise ConfigError(
            "batch_invariant must be left out for an encoder on this device, got True: only a "
            "CPU's kernels have equal bits there"
        )
    max_len, budget = config.resolve_lengths(model_limit)
    return Limits(
        config.max_num_seqs,
        max(budget, max_len),
        max_len,
        config.scheduling,
        chunked_prefill=False,
        long_prefill_token_threshold=config.long_prefill_token_threshold,
    )


def build_encoder(
    config: EngineConfig,
    files: ModelFiles,
    limits: Limits,
    tokenizer: Callable[[], Tokenizer],
    with_tokenizer: bool,
) -> tuple[EncoderRunner, MemoryProfile]:
    """Makes the runner, and loads the weights while the tokenizer is read.

    Args:
        tokenizer: Reads the tokenizer, and keeps it for who asks again.
        with_tokenizer: Whether anyone will.

    Raises:
        WeightsError, OutOfMemoryError: As the message says.
    """
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(files.load)
        runner = EncoderRunner(
            files.abstract,
            max_num_seqs=limits.max_num_seqs,
            max_model_len=limits.max_model_len,
            dtype=resolve_dtype(config.dtype),
            enforce_eager=config.enforce_eager,
        )
        if with_tokenizer:
            tokenizer()
        runner.set_weights(loading.result())
    total = memory_bytes()
    return runner, MemoryProfile(total, total, files.abstract.num_bytes, 0, 0, 0)
