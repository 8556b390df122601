"""Refuses texts that cannot fit by their length, before they are tokenised."""

from functools import cached_property

from jax_engine.core.admission import prompt_too_long
from jax_engine.tokenization.least_tokens import LeastTokens
from jax_engine.tokenization.tokenizer import Tokenizer


class TextLength:
    """What is known of a text's tokens without tokenising it.

    Args:
        max_model_len: The longest prompt plus output, in tokens.
    """

    def __init__(self, tokenizer: Tokenizer, max_model_len: int) -> None:
        self._tokenizer, self._max_model_len = tokenizer, max_model_len

    @cached_property
    def _least(self) -> LeastTokens:
        return LeastTokens.of(self._tokenizer.backend)  # 70 ms for 50,000 tokens

    def of_text(self, text: str) -> int:
        """The fewest tokens of a text; 0 for one that is too short to matter."""
        return self._least.of_text(text) if len(text) >= self._max_model_len else 0

    def check(self, text: str, room: int = 1) -> None:
        """Refuses a text that cannot fit.

        Args:
            room: The tokens of output that must fit, too.

        Raises:
            RequestTooLargeError: It has more tokens than a prompt may have, however it is split.
        """
        least = self.of_text(text)
        if least > self._max_model_len - room:
            raise prompt_too_long(least, self._max_model_len, room, "at least ")

    def beginning(self, text: str, count: int) -> str:
        """A text's beginning, which has its first tokens, so many at least; all if unsure."""
        if len(text) <= count:
            return text
        most = count * self._least.longest * self._least.shrink
        return text[:most] if most else text

    def cannot_fit(self, text: str) -> bool:
        """Whether no request may have this prompt."""
        return self.of_text(text) > self._max_model_len
