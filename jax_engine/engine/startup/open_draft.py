"""Opens the draft model of `speculative_config`.

It is opened, and refused, before the target's weights are read: it shares the target's memory.
Where devices share the target, it is whole: on the first device of one process, or in each of
several processes, all of which draw the same guesses. It is small, and devices would talk for each
guess.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jax_engine.checks import shown
from jax_engine.config.engine_config import EngineConfig
from jax_engine.config.speculative_config import SpeculativeConfig
from jax_engine.errors import ConfigError
from jax_engine.models.checkpoints.resolve import HubOptions
from jax_engine.models.model_loader import ModelFiles, open_model
from jax_engine.speculation.draft_model import scratch_blocks
from jax_engine.speculation.speculator import MAX_DRAFT_TOKENS
from jax_engine.step import Runner
from jax_engine.tokenization.old_tokenizers import has_old_tokenizer
from jax_engine.tokenization.tokenizer import Tokenizer, load_tokenizer

logger = logging.getLogger("jax_engine")


@dataclass(frozen=True)
class DraftModel:
    """A draft model whose files were found.

    Attributes:
        max_model_len: The longest text that it guesses for.
        num_scratch: Blocks of its cache beside those of the target's.
        budget: Tokens that it computes in one step.
        tokenizers: The target's and its own, if they have other vocabularies.
    """

    files: ModelFiles
    max_model_len: int
    num_scratch: int
    budget: int
    tokenizers: tuple[Tokenizer, Tokenizer] | None


@dataclass(frozen=True)
class DraftParts:
    """What a drafter with a draft model is made of.

    Attributes:
        runner: It has the model, and a cache with more blocks than the target's.
        num_blocks: Blocks of the target's cache.
        cost: What a guess costs, in steps of the target: the ratio of the weights' bytes on a
            device, all of which a step reads.
        tokenizers: As in `DraftModel`.
    """

    runner: Runner
    num_blocks: int
    max_model_len: int
    budget: int
    cost: float
    tokenizers: tuple[Tokenizer, Tokenizer] | None = None


def open_draft(
    config: EngineConfig,
    dtype: Any,
    max_model_len: int,
    budget: int,
    target: ModelFiles,
    target_tokenizer: Callable[[], Tokenizer],
) -> DraftModel | None:
    """Finds the draft model and reads its configuration; None if there is to be none.

    Args:
        max_model_len, budget: The engine's.

    Raises:
        ConfigError: It cannot be one for this target, or a key does not suit it.
        ModelNotFoundError, WeightsError: As of the target.
    """
    given = config.speculative_config
    if given is None or given.method != "draft_model":
        return None
    hub = HubOptions(given.revision, config.download_dir, config.hf_token)
    try:
        files = _open(config, given, dtype, max_model_len, hub)
    except ConfigError as error:
        raise ConfigError(f"speculative_config: model {shown(given.model)}: {error}") from error
    if files.abstract.config.head is not None:
        raise ConfigError(
            f"speculative_config: model must generate text, got {shown(given.model)}, which has a "
            f"head for scores ({files.abstract.config.head.task})"
        )
    if files.abstract.config.spec.is_encoder:
        raise ConfigError(
            f"speculative_config: model must generate text, got {shown(given.model)}, an encoder"
        )
    tokenizers = None
    if not config.skip_tokenizer_init:
        tokenizers = _other_vocabularies(given, files, hub, target_tokenizer())
    most = given.num_speculative_tokens
    assert most is not None, "its default was set"
    return DraftModel(
        files,
        min(max_model_len, given.max_model_len or files.abstract.config.max_context_len),
        0
        if tokenizers
        else scratch_blocks(most, MAX_DRAFT_TOKENS, config.max_num_seqs, config.block_size),
        max(budget, MAX_DRAFT_TOKENS),
        tokenizers,
    )


def _open(
    config: EngineConfig,
    given: SpeculativeConfig,
    dtype: Any,
    max_model_len: int,
    hub: HubOptions,
) -> ModelFiles:
    def opened(length: int | None) -> ModelFiles:
        return open_model(
            given.model,
            dtype=dtype,
            load_format="dummy" if config.load_format == "dummy" else "auto",
            seed=config.seed,
            max_model_len=length,
            hub=hub,
            quantization=given.quantization,
        )

    files = opened(given.max_model_len)
    longest = min(max_model_len, files.abstract.config.max_context_len)
    spec = files.abstract.config.spec
    if given.max_model_len is None and spec.for_length(longest) != spec:
        return opened(longest)  # some positions are turned otherwise in longer texts
    return files


def _other_vocabularies(
    given: SpeculativeConfig, files: ModelFiles, hub: HubOptions, target: Tokenizer
) -> tuple[Tokenizer, Tokenizer] | None:
    """The target's tokenizer and the draft's, if their tokens are not the same ones.

    A model may lack some of the other's tokens, as one of a family lacks those for tools.

    Raises:
        ConfigError: The tokens are other ones, and no strings of bytes that could be translated.
    """
    source = files.gguf or files.abstract.source
    if isinstance(source, Path) and not _has_tokenizer(source):
        return None  # it is made for the target's
    own = load_tokenizer(source, hub)
    mine, others = own.backend.get_vocab(), target.backend.get_vocab()
    same = sum(others.get(token) == number for token, number in mine.items())
    if same == min(len(mine), len(others)):
        return None
    for tokenizer, whose in ((target, "the target"), (own, "the draft model")):
        table = tokenizer.token_bytes
        if table is None or table.strips_first_space:
            raise ConfigError(
                f"speculative_config: model must have the target's vocabulary ({len(others)} "
                f"tokens), got {shown(given.model)} with another one ({len(mine)} tokens, {same} "
                f"of them the same), and {whose} has a tokenizer that does not write texts byte by "
                "byte: take a smaller model of the target's family"
            )
    return target, own


def _has_tokenizer(directory: Path) -> bool:
    return any(directory.glob("tokenizer*")) or has_old_tokenizer(directory)
