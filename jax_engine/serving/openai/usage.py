"""Counts the tokens of a request."""

from jax_engine.outputs import RequestOutput
from jax_engine.serving.openai.responses import CachedTokens, Usage


class Counts:
    """Tokens so far of the prompts of one request, by each prompt's number."""

    def __init__(self) -> None:
        self._prompts: dict[int, int] = {}
        self._cached: dict[int, int] = {}
        self._generated = 0

    def add(self, number: int, output: RequestOutput, *, shown: bool = True) -> None:
        """Takes an output, whose tokens are all new.

        Args:
            shown: whether its tokens are part of the answer.
        """
        self._prompts[number] = len(output.prompt_token_ids)
        self._cached[number] = output.num_cached_tokens
        if shown:
            self._generated += sum(len(one.token_ids) for one in output.outputs)

    @property
    def cached(self) -> int:
        """The prompt's tokens that were in the prefix cache."""
        return sum(self._cached.values())

    def usage(self) -> Usage:
        """All that was counted."""
        prompt = sum(self._prompts.values())
        cached = CachedTokens(self.cached)
        return Usage(prompt, self._generated, prompt + self._generated, cached)
