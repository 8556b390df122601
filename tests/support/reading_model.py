"""A model for engine tests that is all about memory: its logits depend on what it reads there.

A token's key is the token itself. The hidden state of a position is a hash of all keys up to it,
read through the block table from the cache. So a wrong block, slot, copy or swap shows in the
output, and what is right can be computed without any cache: `logits_after`.
"""

from collections.abc import Collection, Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np

from jax_engine.lora.adapter import Adapter
from reference.kv_cache import KVCache, slot_of
from reference.random_numbers import derive_seed
from reference.sampling import NoTokenLeft, log_softmax, sample
from tests.support.some_adapters import offset_of
from tests.support.strategies import VOCABULARY

MODULUS = 1_000_003


def hidden_after(keys: Iterable[float]) -> float:
    """A hash of the context, as a number that float64 holds exactly. NaN if any key is NaN."""
    mixed = 17.0
    for key in keys:
        mixed = (mixed * 31 + key + 7) % MODULUS
    return mixed


def logits_of(hidden: float) -> np.ndarray:
    """V logits in [0, 4), different enough that each token has its chances."""
    return np.array([(hidden * (token + 3)) % 97 for token in range(VOCABULARY)]) / 97 * 4


def logits_after(token_ids: Iterable[int]) -> np.ndarray:
    return logits_of(hidden_after(token_ids))


class ReadingModel:
    """Has the methods of `reference.transformer.Transformer` that the engine calls.

    Args:
        offset: What is added to its keys: a model with another adapter has another one.
    """

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset

    config = SimpleNamespace(
        cache_sizes=lambda: {"num_layers": 1, "num_kv_heads": 1, "head_dim": 1}
    )

    def forward(
        self,
        token_ids: np.ndarray,
        positions: np.ndarray,
        kv_cache: KVCache,
        block_tables: np.ndarray,
        context_lens: np.ndarray,
        query_start_loc: np.ndarray,
        slot_mapping: np.ndarray,
    ) -> np.ndarray:
        kv = token_ids[:, None, None].astype(np.float64) + self.offset
        kv_cache.write(0, kv, kv, slot_mapping)
        keys = kv_cache.gpu[0, 0, :, 0, :, 0].reshape(-1).astype(np.float64)
        hidden = np.empty((len(token_ids), 1))
        for s, context_len in enumerate(context_lens):
            tokens = range(query_start_loc[s], query_start_loc[s + 1])
            assert positions[tokens[-1]] == context_len - 1
            for t in tokens:
                slots = [
                    slot_of(block_tables[s], p, kv_cache.block_size)
                    for p in range(positions[t] + 1)
                ]
                hidden[t] = hidden_after(keys[slots])
        assert not np.isnan(hidden).any(), "I41: a slot was read that nobody wrote"
        return hidden

    def compute_logits(self, hidden: np.ndarray) -> np.ndarray:
        return np.array([logits_of(float(row[0])) for row in hidden]).reshape(-1, VOCABULARY)


def with_adapter(adapter: Adapter) -> ReadingModel:
    """The model with an adapter."""
    return ReadingModel(offset_of(adapter))


def complete_without_cache(
    prompt: Collection[int],
    params: Any,
    index: int,
    seed: int,
    eos_token_ids: Collection[int],
    max_model_len: int,
) -> tuple[list[int], list[float], str]:
    """Sample `index` of a request, by itself and from scratch at each token (I39).

    Returns its output tokens, their log-probabilities, and the finish reason.
    """
    output: list[int] = []
    logprobs: list[float] = []
    while True:
        logits = logits_after([*prompt, *output])
        try:
            token = sample(
                logits,
                params,
                prompt_token_ids=list(prompt),
                output_token_ids=output,
                eos_token_ids=eos_token_ids,
                seed=derive_seed(seed, index),
            )
        except NoTokenLeft:
            return output, logprobs, "abort"
        output.append(token)
        logprobs.append(float(log_softmax(logits)[token]))
        ends = (token in eos_token_ids and not params.ignore_eos) or token in params.stop_token_ids
        if ends and len(output) >= params.min_tokens:
            return output, logprobs, "stop"
        if len(output) == params.max_tokens or len(prompt) + len(output) == max_model_len:
            return output, logprobs, "length"
