"""Makes the speculator that an engine's settings ask for."""

from jax_engine.engine.build import EngineParts
from jax_engine.engine.vllm_config import vllm_config
from jax_engine.speculation.config import SpeculativeConfig
from jax_engine.speculation.custom_class import CustomDrafter
from jax_engine.speculation.drafter import Drafter
from jax_engine.speculation.ngram import NgramDrafter
from jax_engine.speculation.speculator import Speculator
from jax_engine.speculation.suffix import SuffixDrafter


def build_speculator(parts: EngineParts) -> Speculator | None:
    """None without `speculative_config`.

    Raises:
        ConfigError: A drafter cannot be made as it says.
    """
    config = parts.config.speculative_config
    if config is None:
        return None
    adaptive = config.enable_adaptive_verification
    return Speculator(_drafter(config, parts), parts.model_config.vocab_size, adaptive=adaptive)


def _drafter(config: SpeculativeConfig, parts: EngineParts) -> Drafter:
    if config.method == "custom_class":
        return CustomDrafter(config.model, vllm_config(parts))
    if config.method == "suffix":
        return SuffixDrafter(
            config.suffix_decoding_max_tree_depth,
            config.suffix_decoding_max_cached_requests,
            config.suffix_decoding_max_spec_factor,
            config.suffix_decoding_min_token_prob,
        )
    assert config.prompt_lookup_min and config.prompt_lookup_max, "its defaults were set"
    return NgramDrafter(config.prompt_lookup_min, config.prompt_lookup_max)
