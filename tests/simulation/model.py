"""The model of the stub runner, which checks by itself what it reads: no oracle runs beside it.

A slot of the cache holds the token that was written there, the token's position, and a mark of the
adapter that it was written with. A step reads its whole context through the block table, fails if a
slot holds another position or mark, and draws what follows the tokens that it found: a pure
function of them, the mark and a seed.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from zlib import crc32

import numpy as np

from jax_engine.step import RequestSetup
from reference.kv_cache import KVCache
from reference.random_numbers import derive_seed
from tests.support.reading_model import ReadingModel
from tests.support.stub_runner import Drawn, seed_of

VOCABULARY = 5
EOS = 2
_MASK = 2**64 - 1
MARK = 2**12  # more than positions times tokens


def next_token(
    token_ids: Sequence[int], seed: int, forbidden: Collection[int] = (), mark: int = 0
) -> int:
    """What follows these tokens; never one of `forbidden`."""
    mixed = crc32(bytes(token_ids), crc32(seed.to_bytes(8, "little"), mark))
    token = ((mixed * 0x9E3779B97F4A7C15) & _MASK) >> 40
    token %= VOCABULARY
    while token in forbidden:
        token = (token + 1) % VOCABULARY
    return token


def contents(token_ids: Any, mark: int = 0) -> np.ndarray:
    """What the slots of these tokens must hold, the first of a sequence."""
    positions = np.arange(len(token_ids)) * VOCABULARY
    return mark * MARK + positions + np.array(token_ids, np.int64)


class CheckingModel:
    """Has the methods of the oracle's that a `StubRunner` calls.

    The hidden state of a token, and its logits, are the mark, and all tokens up to it.

    Args:
        mark: That of its adapter; 0 without one.
    """

    config = ReadingModel.config

    def __init__(self, mark: int = 0) -> None:
        self.mark = mark

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
        slots, size = kv_cache.gpu[0, 0].reshape(-1), kv_cache.block_size
        slots[slot_mapping] = self.mark * MARK + positions * VOCABULARY + token_ids
        hidden = np.full((len(token_ids), 1 + max(context_lens)), -1)
        hidden[:, 0] = self.mark
        spans = pairwise(query_start_loc)
        for table, length, (begin, end) in zip(block_tables, context_lens, spans, strict=True):
            at = np.arange(length)
            found = slots[table[at // size] * size + at % size]
            wrong = found // MARK != self.mark
            if (wrong | (found % MARK // VOCABULARY != at)).any():
                # To tell what a prompt costs, one of zeros is computed all in block 0.
                assert length > size and not table.any() and not token_ids.any(), (
                    f"I13: a row of {length} tokens with mark {self.mark} reads {found}"
                )
                continue
            for token in range(begin, end):
                seen = length - (end - 1 - token)
                hidden[token, 1 : 1 + seen] = found[:seen] % MARK % VOCABULARY
        return hidden

    def compute_logits(self, hidden: np.ndarray) -> np.ndarray:
        return hidden


def draw(
    setup: RequestSetup, index: int, logits: np.ndarray, history: list[int], _: Collection[int]
) -> Drawn:
    """In place of a sampler."""
    mark, *context = logits[: 1 + len(history)].tolist()
    early = len(context) - len(setup.prompt_token_ids) < setup.min_tokens
    forbidden = setup.forbidden[0].tolist() if early else ()
    return next_token(context, seed_of(setup, index), forbidden, mark), None


def letter(token_id: int) -> str:
    """The text of a token; none of the end of a sequence."""
    return "" if token_id == EOS else chr(ord("A") + token_id)


@dataclass(frozen=True)
class Sample:
    """How one sample of a request must come out.

    Attributes:
        tokens: Its output.
        text: Its text, without the stop string that ended it.
        end: finish_reason and stop_reason.
    """

    tokens: list[int]
    text: str
    end: tuple[str, int | str | None]


@dataclass(frozen=True)
class Rules:
    """What of a request decides its tokens; all that the oracle reads of one."""

    prompt: tuple[int, ...]
    seed: int
    max_tokens: int | None
    min_tokens: int
    ignore_eos: bool
    stop_token_ids: tuple[int, ...]
    stop: tuple[str, ...]
    mark: int = 0

    def sample(self, index: int, max_model_len: int) -> Sample:
        """The index-th sample, computed alone and from scratch."""
        seed = derive_seed(self.seed, index)
        ends = {EOS, *self.stop_token_ids}
        longest = max_model_len - len(self.prompt)
        longest = longest if self.max_tokens is None else min(longest, self.max_tokens)
        tokens: list[int] = []
        text = ""
        while True:
            early = len(tokens) < self.min_tokens
            token = next_token([*self.prompt, *tokens], seed, ends if early else (), self.mark)
            tokens.append(token)
            early = len(tokens) < self.min_tokens
            if token == EOS and not self.ignore_eos and not early:
                return Sample(tokens, text, ("stop", None))
            if token in self.stop_token_ids and not early:
                return Sample(tokens, text, ("stop", token))
            text += letter(token)
            found = [one for one in self.stop if text.endswith(one)] if letter(token) else []
            if found and len(tokens) > self.min_tokens:
                longest_found = max(found, key=len)
                return Sample(tokens, text.removesuffix(longest_found), ("stop", longest_found))
            if len(tokens) == longest:
                return Sample(tokens, text, ("length", None))
