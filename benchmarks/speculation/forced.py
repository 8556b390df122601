"""A drafter that knows the answer, and is wrong as often as it is told to be."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jax_engine.config.speculative_config import SpeculativeConfig

WRONG = 7  # added to a token, it is another one


class Known:
    """The texts that the next requests will have, prompt and output."""

    texts: Sequence[list[int]] = ()


def forced(known: Known, share: float, count: int) -> SpeculativeConfig:
    """Settings under which each guess is right with this probability.

    Args:
        share: The probability, for each guess by itself.
        count: k, the guesses of a sequence in one step.
    """
    rng = np.random.default_rng(0)

    class Forced:
        def __init__(self, vllm_config: Any) -> None:
            del vllm_config

        def propose(
            self,
            sampled_token_ids: list[list[int]],
            num_tokens_no_spec: np.ndarray,
            token_ids_cpu: np.ndarray,
            slot_mappings: Any = None,
        ) -> list[list[int]]:
            del sampled_token_ids, slot_mappings
            rows = zip(num_tokens_no_spec, token_ids_cpu, strict=True)
            return [self._guess(row[:length].tolist()) for length, row in rows]

        def _guess(self, tokens: list[int]) -> list[int]:
            text = next(one for one in known.texts if one[: len(tokens)] == tokens)
            right = text[len(tokens) : len(tokens) + count]
            wrong = rng.random(len(right)) >= share
            return [token + WRONG * miss for token, miss in zip(right, wrong.tolist(), strict=True)]

    # Adaptive verification would guess less than k here and there: the figure is about k.
    return SpeculativeConfig(
        method="custom_class",
        model=Forced,
        num_speculative_tokens=count,
        enable_adaptive_verification=False,
    )
