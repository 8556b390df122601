"""The text of one sequence as its tokens arrive, and the stop strings in it."""

from jax_engine.sampling_params import SamplingParams
from jax_engine.tokenization.detokenizer import IncrementalDetokenizer
from jax_engine.tokenization.stop import StopChecker
from jax_engine.tokenization.tokenizer import Tokenizer


class SequenceText:
    """Constant work a token: new text is decoded once, checked once and returned once.

    Attributes:
        stopped_by: The stop string that was found, else None.
    """

    def __init__(
        self, tokenizer: Tokenizer, prompt_token_ids: list[int], params: SamplingParams
    ) -> None:
        self.stopped_by: str | None = None
        self._detokenizer = IncrementalDetokenizer(
            tokenizer, prompt_token_ids, skip_special_tokens=params.skip_special_tokens
        )
        stops, self._includes_stop = params.stop_strings, params.include_stop_str_in_output
        self._stops = StopChecker(stops, self._includes_stop) if stops else None
        self._min_tokens = params.min_tokens
        self._num_tokens = 0

    def take(
        self,
        token_ids: list[int],
        finish_reason: str | None = None,
        stop_reason: int | str | None = None,
    ) -> str:
        """Takes new output tokens; nothing more is taken once a stop string was found.

        Where there are stop strings, one token at a time: a string ends the output if the text of a
        token after the first `min_tokens` completes it.

        Args:
            finish_reason, stop_reason: As in `CompletionOutput`, with the last tokens.

        Returns:
            The text that is now certain: no half characters, nothing that may be the beginning of a
            stop string. A token that ended the output is not text. At the end, all that is left.
        """
        if self.stopped_by is not None:
            return ""
        ended_by_token = finish_reason == "stop" and not isinstance(stop_reason, str)
        if ended_by_token and not self._includes_stop:
            token_ids = token_ids[:-1]
        self._num_tokens += len(token_ids)
        text = self._certain(self._detokenizer.add(token_ids))
        return text if finish_reason is None else text + self._rest()

    def _certain(self, text: str) -> str:
        if self._stops is None:
            return text
        may_end = self._num_tokens > self._min_tokens
        text, self.stopped_by = self._stops.add(text, may_end=may_end)
        return text

    def _rest(self) -> str:
        """What was held back."""
        if self.stopped_by is not None:
            return ""
        text = self._certain(self._detokenizer.flush())
        if self._stops is not None and self.stopped_by is None:
            text += self._stops.flush()
        return text
