"""Makes the speculator that an engine's settings ask for."""

from functools import partial

from jax_engine.config.engine_config import EngineConfig
from jax_engine.config.speculative_config import SpeculativeConfig
from jax_engine.engine.startup.build import EngineParts
from jax_engine.engine.vllm_parts import vllm_config
from jax_engine.speculation.draft_model import DraftModelDrafter
from jax_engine.speculation.draft_runner import DraftRunner, draft_setup
from jax_engine.speculation.drafter import CustomDrafter, Drafter
from jax_engine.speculation.lookup_drafters import NgramDrafter, SuffixDrafter
from jax_engine.speculation.other_vocabulary import OtherVocabularyDrafter
from jax_engine.speculation.speculator import MAX_DRAFT_TOKENS, Speculator


def build_speculator(parts: EngineParts) -> Speculator | None:
    """None without `speculative_config`.

    Raises:
        ConfigError: A drafter cannot be made as it says.
    """
    config = parts.config.speculative_config
    if config is None:
        return None
    adaptive = config.enable_adaptive_verification
    return Speculator(
        _drafter(config, parts),
        parts.model_config.vocab_size,
        adaptive=adaptive,
        draft_cost=parts.draft.cost if parts.draft else 0.0,
    )


def most_rows(config: EngineConfig, max_samples: int) -> int:
    """The most rows of a step, where each guess is a row of its own.

    Args:
        max_samples: As in `Capabilities`.
    """
    rows, speculation = config.max_num_seqs, config.speculative_config
    if speculation is None:
        return rows
    each = speculation.num_speculative_tokens
    assert each is not None, "its default was set"
    return min(rows + min(MAX_DRAFT_TOKENS, rows * each), max_samples)


def _drafter(config: SpeculativeConfig, parts: EngineParts) -> Drafter:
    if config.method == "custom_class":
        return CustomDrafter(config.model, vllm_config(parts))
    if config.method == "draft_model":
        return _of_draft_model(config, parts)
    if config.method == "suffix":
        return SuffixDrafter(
            config.suffix_decoding_max_tree_depth,
            config.suffix_decoding_max_cached_requests,
            config.suffix_decoding_max_spec_factor,
            config.suffix_decoding_min_token_prob,
        )
    assert config.prompt_lookup_min and config.prompt_lookup_max, "its defaults were set"
    return NgramDrafter(config.prompt_lookup_min, config.prompt_lookup_max)


def _of_draft_model(config: SpeculativeConfig, parts: EngineParts) -> Drafter:
    draft = parts.draft
    assert draft is not None, "it was opened with the target"
    sizes = draft.runner.capabilities
    prepare = partial(
        draft_setup,
        greedy=config.draft_sample_method == "greedy",
        vocab_size=0 if draft.tokenizers else sizes.vocab_size,  # biases of tokens that it knows
    )
    runner = DraftRunner(draft.runner, prepare)
    limits = {"max_model_len": draft.max_model_len, "max_num_batched_tokens": draft.budget}
    if draft.tokenizers is None:
        return DraftModelDrafter(runner, num_blocks=draft.num_blocks, **limits)
    target, own = draft.tokenizers
    return OtherVocabularyDrafter(
        runner,
        target,
        own,
        num_blocks=draft.num_blocks,
        block_size=sizes.block_size,
        **limits,
    )
