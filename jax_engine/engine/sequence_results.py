"""Text and log-probabilities of one sequence, as its tokens arrive."""

from jax_engine.core.sequence import Sequence
from jax_engine.engine.sequence_text import SequenceText
from jax_engine.engine.token_logprobs import Words, sampled_logprobs
from jax_engine.logprobs import FlatLogprobs, Logprob
from jax_engine.sampling_params import SamplingParams
from jax_engine.step import StepResult


class SequenceResults:
    """The outputs of one sequence that a client may read.

    Args:
        text: Assembles the sequence's text; None if text is not requested.

    Attributes:
        logprobs: An entry for each output token; None if they are not wanted.
        cumulative_logprob: The sum over all output tokens, where log-probabilities are computed.
        given: The tokens and characters that earlier deltas held, and whether one held the end.
    """

    def __init__(self, params: SamplingParams, text: SequenceText | None) -> None:
        self.logprobs: list[dict[int, Logprob]] | FlatLogprobs | None = None
        if params.logprobs is not None or params.logprob_token_ids is not None:
            self.logprobs = FlatLogprobs() if params.flat_logprobs else []
        self.cumulative_logprob = 0.0
        self.given = (0, 0, False)
        self._params = params
        self._text = text

    def take_token(self, seq: Sequence, row: int, result: StepResult, words: Words) -> str | None:
        """Takes the token just appended to `seq`; returns the stop string it completed, if any.

        Args:
            row: The token's row among those that the step drew.
        """
        token = seq.token_ids[-1]
        if self._params.needs_logprobs:
            assert result.logprobs is not None
            self.cumulative_logprob += float(result.logprobs.logprobs[row])
            if self.logprobs is not None:
                self.logprobs.append(
                    sampled_logprobs(
                        result.logprobs, result.logits, row, token, self._params, words
                    )
                )
        if self._text is None:
            return None
        if self._is_text(seq):
            self._text.add([token])
        if seq.finish_reason is not None:
            self._text.finish()
        return self._text.stopped_by

    def take_all(self, seq: Sequence) -> None:
        """Takes all output tokens of an ended sequence, of which only the text is needed."""
        if self._text is not None:
            tokens = seq.output_token_ids
            self._text.add(tokens if self._is_text(seq) else tokens[:-1])
            self._text.finish()

    def text(self, seq: Sequence) -> str:
        """The part of the text that is final; all of it if `seq` was aborted."""
        if self._text is None:
            return ""
        if seq.finish_reason == "abort":
            self._text.finish()  # what was held back for tokens that will not come
        return self._text.text

    def _is_text(self, seq: Sequence) -> bool:
        """False if the last token ended the sequence: such a token is not part of the text."""
        ended_by_token = seq.finish_reason == "stop" and not isinstance(seq.stop_reason, str)
        return not ended_by_token or self._params.include_stop_str_in_output
