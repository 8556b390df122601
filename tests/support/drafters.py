"""Drafters that guess right, wrong, at random and out of all bounds, with vLLM's interface."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jax_engine.config.speculative_config import SpeculativeConfig

type Guess = Callable[[list[int]], list[int]]
MOST = 9  # more than is ever asked for here


def speculation(guess: Guess, *, most: int = 5, adaptive: bool = False) -> SpeculativeConfig:
    """Settings under which each sequence of tokens gets these guesses."""

    class Drafter:
        def __init__(self, vllm_config: Any) -> None:
            assert vllm_config.speculative_config.num_speculative_tokens == most

        def propose(
            self,
            sampled_token_ids: list[list[int]],
            num_tokens_no_spec: np.ndarray,
            token_ids_cpu: np.ndarray,
            slot_mappings: Any = None,
        ) -> list[list[int]]:
            rows = zip(sampled_token_ids, num_tokens_no_spec, token_ids_cpu, strict=True)
            known = [(new, row[:length].tolist()) for new, length, row in rows]
            assert all(new and tokens[-len(new) :] == new for new, tokens in known)
            return [guess(tokens) for _, tokens in known]

    return SpeculativeConfig(
        method="custom_class",
        model=Drafter,
        num_speculative_tokens=most,
        enable_adaptive_verification=adaptive,
    )


def perfect(texts: Sequence[list[int]]) -> Guess:
    """Goes on like the first of these texts that begins with the tokens."""

    def guess(tokens: list[int]) -> list[int]:
        found = [text for text in texts if text[: len(tokens)] == tokens]
        return found[0][len(tokens) : len(tokens) + MOST] if found else []

    return guess


def mistaken(right: Guess, seed: int, vocab_size: int, share: float) -> Guess:
    """The same, but for a share of its guesses; and more of them."""
    rng = np.random.default_rng(seed)

    def guess(tokens: list[int]) -> list[int]:
        wrong = rng.integers(0, vocab_size, MOST).tolist()
        known = right(tokens)
        return [
            known[i] if i < len(known) and rng.random() >= share else wrong[i] for i in range(MOST)
        ]

    return guess


def unruly(right: Guess, seed: int, vocab_size: int) -> Guess:
    """Now and then it guesses nothing, fails, or names what is no token."""
    rng = np.random.default_rng(seed)

    def guess(tokens: list[int]) -> list[int]:
        case = rng.integers(0, 6)
        if case == 0:
            return []
        if case == 1:
            raise RuntimeError("this drafter fails now and then")
        if case == 2:
            return [tokens[-1]] * MOST
        if case == 3:
            return [*right(tokens)[:2], vocab_size, 0]
        if case == 4:
            return [-1]
        return right(tokens)

    return guess
