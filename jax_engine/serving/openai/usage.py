"""Counts the tokens of a request."""

from jax_engine.outputs import RequestOutput
from jax_engine.serving.openai.responses import CachedTokens, Usage


class Counts:
    """Tokens so far of the prompts of one request, by each prompt's number.

    Attributes:
        predicted: once a prompt's output has ended: its tokens that were guessed out of its
            prediction, and the prediction's tokens that it does not have.
    """

    def __init__(self) -> None:
        self.predicted = 0, 0
        self._prompts: dict[int, int] = {}
        self._cached: dict[int, int] = {}
        self._generated: dict[tuple[int, int], int] = {}

    def add(self, number: int, output: RequestOutput, *, shown: bool = True) -> None:
        """Takes an output, whose tokens are all new.

        Args:
            shown: whether its tokens are part of the answer.
        """
        self._prompts[number] = len(output.prompt_token_ids)
        self._cached[number] = output.num_cached_tokens
        if output.finished:
            metrics = output.metrics
            self.predicted = (
                metrics.num_accepted_prediction_tokens,
                metrics.num_rejected_prediction_tokens,
            )
        for one in output.outputs if shown else ():
            place = (number, one.index)
            self._generated[place] = self._generated.get(place, 0) + len(one.token_ids)

    @property
    def cached(self) -> int:
        """The prompt's tokens that were in the prefix cache."""
        return sum(self._cached.values())

    def usage(self) -> Usage:
        """All that was counted."""
        prompt, generated = sum(self._prompts.values()), sum(self._generated.values())
        return Usage(prompt, generated, prompt + generated, CachedTokens(self.cached))

    def usage_of(self, number: int, choice: int | None) -> Usage:
        """What one choice of a prompt has used so far, as vLLM's streams say it; None: no tokens
        of it yet."""
        prompt = self._prompts[number]
        generated = 0 if choice is None else self._generated.get((number, choice), 0)
        return Usage(prompt, generated, prompt + generated)
