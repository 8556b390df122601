"""Where the text of each token begins in a completion's text."""

from collections.abc import Sequence

from jax_engine.tokenization.detokenizer import IncrementalDetokenizer
from jax_engine.tokenization.tokenizer import Tokenizer


class Offsets:
    """Counts the letters of one choice, token by token, as they become text.

    A token without text of its own, such as a hidden special token, begins where the next one does.
    So do all tokens of one letter.
    """

    def __init__(
        self, tokenizer: Tokenizer, prompt_ids: Sequence[int], *, skip_special_tokens: bool
    ) -> None:
        self._tokenizer, self._prompt_ids = tokenizer, prompt_ids
        self._stream = IncrementalDetokenizer(
            tokenizer, prompt_ids, skip_special_tokens=skip_special_tokens
        )
        self._at = 0

    def of_prompt(self, text: str) -> list[int]:
        """Those of the prompt's tokens, whose text stands before the output.

        Special tokens that the text does not have, such as BOS, have no length.
        """
        stream = IncrementalDetokenizer(self._tokenizer, skip_special_tokens=False)
        found, at = [], 0
        for token in self._prompt_ids:
            found.append(at)
            if self._tokenizer.is_special(token):
                own = self._tokenizer.decode([token], skip_special_tokens=False)
                if not text.startswith(own, at):
                    continue
            at = min(at + len(stream.add([token])), len(text))
        self._at = len(text)
        return found

    def of_output(self, token_ids: Sequence[int]) -> list[int]:
        """Those of new tokens of the output."""
        found = []
        for token in token_ids:
            found.append(self._at)
            self._at += len(self._stream.add([token]))
        return found
