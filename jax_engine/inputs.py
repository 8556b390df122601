"""Types of prompts given as dicts, with vLLM's names: for type checkers, or as constructors."""

from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict


class TextPrompt(TypedDict):
    """A prompt as text.

    Attributes:
        prompt: The text.
        cache_salt: Prompts share cached blocks only with prompts of the same salt.
        prediction: What the output is expected to repeat, as text or token ids. An engine with
            `speculative_config` guesses from it.
    """

    prompt: str
    cache_salt: NotRequired[str]
    prediction: NotRequired[str | Sequence[int]]


class TokensPrompt(TypedDict):
    """A prompt as token ids.

    Attributes:
        prompt_token_ids: The model's input.
        prompt: The text they come from, returned with the output.
        cache_salt, prediction: As in `TextPrompt`.
    """

    prompt_token_ids: Sequence[int]
    prompt: NotRequired[str]
    cache_salt: NotRequired[str]
    prediction: NotRequired[str | Sequence[int]]


class EmbedsPrompt(TypedDict):
    """A prompt as vectors that the first layer reads in place of tokens'.

    Attributes:
        prompt_embeds: An array of NumPy, JAX or PyTorch, [tokens, width]. Needs an engine with
            `enable_prompt_embeds`.
        prompt: The text that they stand for, returned with the output.
        cache_salt: As in `TextPrompt`.
    """

    prompt_embeds: Any
    prompt: NotRequired[str]
    cache_salt: NotRequired[str]


PromptType = str | Sequence[int] | TextPrompt | TokensPrompt | EmbedsPrompt
