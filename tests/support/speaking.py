"""A tiny Llama that speaks bytes and some markers, and engines of it that guess.

It is built once; engines share its compiled steps. So what a request says may have schemas, calls
and thoughts in it, and every drafter may be tried in a step of many requests.
"""

import functools
import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, decoders, pre_tokenizers
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE

from jax_engine import EngineConfig, LLMEngine
from jax_engine.config.reasoning_config import ReasoningConfig
from jax_engine.config.speculative_config import SpeculativeConfig
from jax_engine.core.block_manager import BlockManager
from jax_engine.core.scheduler import Scheduler
from jax_engine.engine.startup.build import EngineParts, build_engine
from jax_engine.speculation.speculator import MAX_DRAFT_TOKENS
from tests.support.byte_tokenizer import EOS_TOKEN, byte_alphabet
from tests.support.drafters import Guess
from tests.support.tiny_llama import tiny_llama

MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
EOS = 256
THINK, THOUGHT, CALL, CALLED = range(EOS + 1, EOS + 5)
VOCAB = EOS + 5
MAX_LEN, BLOCK, BLOCKS = 256, 8, 256
MAX_SEQS = 16


@functools.cache
def checkpoint() -> Path:
    """Token i is byte i, 256 ends a sequence, and each marker is a token."""
    folder = Path(tempfile.mkdtemp()) / "speaking"
    tiny_llama(folder, vocab_size=VOCAB, max_position_embeddings=MAX_LEN)
    config = json.loads((folder / "config.json").read_text()) | {"eos_token_id": EOS}
    (folder / "config.json").write_text(json.dumps(config))
    backend = Backend(BPE(vocab={c: byte for byte, c in byte_alphabet().items()}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    words = (EOS_TOKEN, *MARKERS)
    backend.add_special_tokens([AddedToken(one, special=True, normalized=False) for one in words])
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": EOS_TOKEN}))
    return folder


@functools.cache
def parts() -> EngineParts:
    config = EngineConfig(
        model=str(checkpoint()),
        dtype="float32",
        block_size=BLOCK,
        num_gpu_blocks_override=BLOCKS,
        max_model_len=MAX_LEN,
        max_num_seqs=MAX_SEQS,
        max_num_batched_tokens=MAX_LEN,
        swap_space=0.01,
    )
    return build_engine(config)


def speaking_engine(
    speculation: SpeculativeConfig | None = None,
    *,
    ahead: bool = True,
    num_blocks: int = BLOCKS,
    num_cpu_blocks: int = 0,
    **settings: Any,
) -> LLMEngine:
    """An empty engine; fewer blocks make requests wait and preempt each other.

    Args:
        settings: Arguments of `Scheduler`.
    """
    made = parts()
    made.worker.setups.clear()
    blocks = BlockManager(
        BLOCK,
        num_blocks,
        num_cpu_blocks,
        enable_prefix_caching=True,
        table_width=-(-MAX_LEN // BLOCK),
    )
    drafts = 0 if speculation is None else MAX_DRAFT_TOKENS
    usual = {
        "max_model_len": MAX_LEN,
        "max_num_seqs": MAX_SEQS,
        "max_num_batched_tokens": MAX_LEN,
        "max_draft_tokens": drafts,
    }
    scheduler = Scheduler(blocks, **(usual | settings))
    config = replace(
        made.config,
        async_scheduling=ahead,
        speculative_config=speculation,
        reasoning_config=ReasoningConfig("qwen3"),
        scheduling_policy=scheduler.policy,
    )
    return LLMEngine(replace(made, config=config, scheduler=scheduler))


def followed_by(right: Guess, wrong: Sequence[int], every: int = 2) -> Guess:
    """Right guesses, but each of so many is followed by tokens that no grammar allows there."""

    def guess(tokens: list[int]) -> list[int]:
        known = right(tokens)
        cut = len(tokens) % every
        return [*known[:cut], *wrong, *known[cut:]]

    return guess
