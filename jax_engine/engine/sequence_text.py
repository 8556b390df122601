"""The text of one sequence as its tokens arrive, and the stop strings in it."""

from jax_engine.sampling_params import SamplingParams
from jax_engine.tokenization.detokenizer import IncrementalDetokenizer
from jax_engine.tokenization.stop import StopChecker
from jax_engine.tokenization.tokenizer import Tokenizer


class SequenceText:
    """Constant work a token: new text is decoded once, checked once and appended.

    Attributes:
        text: All that is certain so far: no half characters, nothing that may be the beginning of
            a stop string.
        stopped_by: The stop string that was found, else None.
    """

    def __init__(
        self, tokenizer: Tokenizer, prompt_token_ids: list[int], params: SamplingParams
    ) -> None:
        self.text = ""
        self.stopped_by: str | None = None
        self._detokenizer = IncrementalDetokenizer(
            tokenizer, prompt_token_ids, skip_special_tokens=params.skip_special_tokens
        )
        stops = params.stop_strings
        self._stops = StopChecker(stops, params.include_stop_str_in_output) if stops else None
        self._min_tokens = params.min_tokens
        self._num_tokens = 0

    def add(self, token_ids: list[int]) -> None:
        """Takes new output tokens; nothing more is taken once a stop string was found.

        Where there are stop strings, one token at a time: a string ends the output if the text of a
        token after the first `min_tokens` completes it.
        """
        if self.stopped_by is None:
            self._num_tokens += len(token_ids)
            self._feed(self._detokenizer.add(token_ids))

    def finish(self) -> None:
        """Appends what was held back: there are no more tokens."""
        if self.stopped_by is not None:
            return
        self._feed(self._detokenizer.flush())
        if self._stops is not None and self.stopped_by is None:
            self.text += self._stops.flush()

    def _feed(self, text: str) -> None:
        if self._stops is not None:
            may_end = self._num_tokens > self._min_tokens
            text, self.stopped_by = self._stops.add(text, may_end=may_end)
        self.text += text
