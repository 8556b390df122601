"""Converts a request's parameters to constraints on its tokens, before it is accepted.

Constraints that do not depend on the output become a static mask, packed once per request.
Longer bad words, a guide and logits processors depend on the last token, which the host must know:
`needs_last_token`.
"""

from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import UInt32

from jax_engine.errors import InvalidRequestError
from jax_engine.guided.compiler import GuideCompiler
from jax_engine.guided.guide import Guide
from jax_engine.sampling.bad_words import bad_word_tokens
from jax_engine.sampling.processors import Processor, with_prompt
from jax_engine.sampling.token_bits import token_bits
from jax_engine.sampling_params import SamplingParams
from jax_engine.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class RequestConstraints:
    """What restricts one request's tokens beyond penalties and bias.

    Attributes:
        allowed: Bits of `allowed_token_ids` (of all tokens if None) minus the bad words of one
            token.
        ends: Bits of the tokens that end a sequence, forbidden before `min_tokens`.
        bad_words: Bad words of two or more tokens.
        processors: Logits processors, in the order of application.
        guide: The grammar, and each sequence's place in it.
    """

    allowed: UInt32[np.ndarray, " words"]
    ends: UInt32[np.ndarray, " words"]
    min_tokens: int
    bad_words: list[list[int]]
    processors: list[Processor]
    guide: Guide | None

    @property
    def needs_last_token(self) -> bool:
        return bool(self.bad_words or self.processors or self.guide is not None)


class ConstraintBuilder:
    """Builds the constraints that become masks on the host.

    Args:
        vocab_size: Of the model's logits, padding included.
    """

    def __init__(
        self, tokenizer: Tokenizer | None, vocab_size: int, eos_token_ids: frozenset[int]
    ) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._eos_token_ids = eos_token_ids
        self._guides = GuideCompiler(tokenizer, vocab_size, eos_token_ids)

    def build(self, params: SamplingParams) -> RequestConstraints | None:
        """Returns None for a request without constraints.

        Raises:
            InvalidRequestError: They need a tokenizer that the engine lacks, name no valid grammar,
                or leave no token that could ever be drawn.
        """
        words = self._bad_words(params)
        guided, allowed = params.structured_outputs, params.allowed_token_ids
        ends = self._eos_token_ids | set(params.stop_token_ids or ())
        restricted = words or guided or allowed is not None or params.logits_processors
        if not restricted and len(ends) < self._vocab_size:
            return None
        everything = range(self._vocab_size)
        single = {word[0] for word in words if len(word) == 1}
        left = set(everything if allowed is None else allowed) - single
        if not left or (params.min_tokens and left <= ends):
            raise InvalidRequestError(
                f"allowed_token_ids must leave at least 1 token that bad_words and min_tokens "
                f"({params.min_tokens}) do not forbid, got "
                f"{'all' if allowed is None else len(set(allowed))} ids of which none is left"
            )
        return RequestConstraints(
            allowed=token_bits(left, self._vocab_size),
            ends=token_bits(ends & set(everything), self._vocab_size),
            min_tokens=params.min_tokens,
            bad_words=[word for word in words if len(word) > 1],
            processors=[
                _in_this_context(with_prompt(one)) for one in params.logits_processors or ()
            ],
            guide=self._guides.guide(guided) if guided else None,
        )

    def _bad_words(self, params: SamplingParams) -> list[list[int]]:
        """Bad words as token sequences; `bad_words_token_ids` gives them without a tokenizer."""
        given: list[list[int]] | None = getattr(params, "bad_words_token_ids", None)
        if given is None and params.bad_words:
            if self._tokenizer is None:
                raise InvalidRequestError(
                    "bad_words need text, but the engine has no tokenizer "
                    "(skip_tokenizer_init=True): use logit_bias of -100"
                )
            encode = self._tokenizer.encode
            given = bad_word_tokens(
                params.bad_words, lambda text: encode(text, add_special_tokens=False)
            )
        # A tokenizer may have tokens without logits in the model: they are never drawn.
        return [word for word in given or () if max(word) < self._vocab_size]


def _in_this_context(processor: Callable[..., Any]) -> Processor:
    """A processor with the caller's context variables, for `np.errstate` is one of them.

    The thread that runs the engine runs it.
    """
    context, run = copy_context(), with_prompt(processor)
    return lambda prompt, output, logits: context.run(run, prompt, output, logits)
