"""Engines with a draft model, and a watch over what it computes and guesses."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jax_engine import LLMEngine
from jax_engine.config.speculative_config import SpeculativeConfig
from jax_engine.speculation.draft_cache import PrefixHashes
from jax_engine.speculation.draft_model import DraftModelDrafter, LookaheadDraft
from jax_engine.speculation.drafter import DraftRequest
from jax_engine.step import Step
from tests.support.reading_model import ReadingModel, hidden_after, logits_of


def draft_config(most: int = 5, **changes: Any) -> SpeculativeConfig:
    return SpeculativeConfig(
        **{
            "method": "draft_model",
            "model": "stub",
            "num_speculative_tokens": most,
            "enable_adaptive_verification": False,
        }
        | changes
    )


class OtherModel(ReadingModel):
    """A draft model that is often wrong: of another hash."""

    def compute_logits(self, hidden: np.ndarray) -> np.ndarray:
        return super().compute_logits(hidden + 1.0)


class Watch:
    """A drafter's calls, and the steps of its runner.

    Attributes:
        computed: The tokens of each step of the runner.
        proposed: What was asked, and what was guessed; None if it could not guess yet.
        num_read: How often guesses were read that had been launched behind a step in flight.
    """

    def __init__(self, engine: LLMEngine) -> None:
        self.speculator: Any = engine._pipeline._speculator
        self.drafter = self.speculator._drafter
        self.runner = self.drafter._runner.runner
        self.computed: list[int] = []
        self.proposed: list[tuple[list[int], list[int] | None]] = []
        self.num_read = 0
        self._going: tuple[Any, set[int]] = (None, set())
        self.fail_after: int | None = None
        self.speculator._drafter = self
        self._launch = self.runner.launch
        self.runner.launch = self.launch
        if isinstance(self.drafter, DraftModelDrafter):
            self._read, self._settle = self.drafter.read, self.drafter.settle
            self.drafter.read, self.drafter.settle = self.read, self.settle

    def launch(self, step: Step) -> Any:
        if self.fail_after is not None:
            self.fail_after -= 1
            if self.fail_after < 0:
                self.fail_after = None
                raise RuntimeError("the draft model's device failed")
        self.computed.append(sum(len(row.tokens) for row in step.rows))
        return self._launch(step)

    def propose(self, asked: Sequence[DraftRequest]) -> list[list[int] | None]:
        tokens = [list(one.token_ids) for one in asked]
        found: list[list[int] | None] = self.drafter.propose(asked)
        self.proposed += zip(tokens, found, strict=True)
        return found

    def settle(self, behind: LookaheadDraft, asked: Sequence[DraftRequest]) -> None:
        self._going = behind, {one.seq_id for one in asked}
        self._settle(behind, asked)

    def read(self, behind: LookaheadDraft) -> dict[int, list[int]]:
        """A sequence that has ended is left out: nobody takes its guesses.

        They lie behind all right guesses of its last step, and its text may end before those.
        """
        found: dict[int, list[int]] = self._read(behind)
        settled, going = self._going
        assert settled is behind
        self.proposed += [(list(behind.wanted[i].token_ids), found[i]) for i in found if i in going]
        self.num_read += 1
        return found

    def forget(self, seq_ids: set[int]) -> None:
        self.drafter.forget(seq_ids)

    @property
    def guesses(self) -> list[tuple[list[int], list[int]]]:
        """The tokens before, and guesses."""
        return [(tokens, found) for tokens, found in self.proposed if found]

    def check_slots(self, texts: Sequence[list[int]]) -> None:
        """A slot that says it holds the end of a beginning of one of these texts holds it."""
        last = {
            int(one): token
            for text in texts
            for one, token in zip(PrefixHashes().upto(text), text, strict=True)
        }
        slots = self.drafter._cache._slots
        for block, offset in zip(*np.nonzero(slots), strict=True):
            token = last.get(int(slots[block, offset]))
            held = self.runner.memory.gpu[0, 0, block, 0, offset, 0]
            assert token is None or held == token, (block, offset, token, held)

    def check_greedy(self, shift: float = 0.0) -> None:
        """Each guess is the most probable token behind all tokens before it.

        Args:
            shift: What the model adds to the hash of these tokens.
        """
        for tokens, found in self.guesses:
            text = list(tokens)
            for token in found:
                assert token == int(logits_of(hidden_after(text) + shift).argmax()), (tokens, found)
                text.append(token)

    def check_drawn(self, texts: Sequence[list[int]]) -> None:
        """All guesses are what one of these texts has there, as far as it goes."""
        for tokens, found in self.guesses:
            rests = [text[len(tokens) :] for text in texts if text[: len(tokens)] == tokens]
            shorter = [(rest[: len(found)], found[: len(rest)]) for rest in rests]
            assert any(rest == guessed for rest, guessed in shorter), (tokens, found)
