"""`tokenization_kwargs`: how the texts of one call become token ids, with Hugging Face's names."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from jax_engine.checks import check_integer
from jax_engine.engine.prompts import PromptInput, prompt_text, with_token_ids
from jax_engine.errors import InvalidRequestError
from jax_engine.tokenization.tokenizer import Tokenizer
from jax_engine.typed_fields import check_types, named_fields


@named_fields(InvalidRequestError)
@dataclass(kw_only=True)
class TokenizationOptions:
    """
    Attributes:
        add_special_tokens: Add what the model expects around a text, usually BOS before it.
        truncation: Cut to `max_length`, which has no effect without it.
        max_length: The most tokens.
        truncation_side: Which end is cut.
        truncate_prompt_tokens: Same as `max_length` with truncation from the left.
    """

    add_special_tokens: bool = True
    truncation: bool = False
    max_length: int | None = None
    truncation_side: Literal["left", "right"] = "right"
    truncate_prompt_tokens: int | None = None

    def __post_init__(self) -> None:
        check_types(self, InvalidRequestError, "tokenization_kwargs: ")
        for name in ("max_length", "truncate_prompt_tokens"):
            if getattr(self, name) is not None:
                check_integer(f"tokenization_kwargs: {name}", getattr(self, name), 1)

    @property
    def cuts(self) -> bool:
        """Whether a prompt may be shortened."""
        cut_right = self.truncation and self.max_length is not None
        return cut_right or self.truncate_prompt_tokens is not None

    def cut(self, token_ids: list[int]) -> list[int]:
        if self.truncate_prompt_tokens is not None:
            return token_ids[-self.truncate_prompt_tokens :]
        if not self.truncation or self.max_length is None:
            return token_ids
        if self.truncation_side == "left":
            return token_ids[-self.max_length :]
        return token_ids[: self.max_length]


def tokenization_options(kwargs: Mapping[str, Any] | None) -> TokenizationOptions:
    """The options of a call. Raises InvalidRequestError as `tokenized`."""
    return TokenizationOptions(**_checked(kwargs))


def _checked(kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise InvalidRequestError(
            f"tokenization_kwargs must be a dict, got {type(kwargs).__name__}"
        )
    return {str(name): value for name, value in (kwargs or {}).items()}


def tokenized(
    prompts: Sequence[PromptInput],
    tokenizer: Tokenizer | None,
    kwargs: Mapping[str, Any] | None,
    *,
    cannot_fit: Callable[[str], bool] | None = None,
    **defaults: Any,
) -> list[PromptInput]:
    """The prompts, with token ids beside each text; the same ones where nothing is asked for.

    Args:
        cannot_fit: Tells texts that are refused later by their length, and so stay as they are.
            None: they may be cut later.
        defaults: Options that `kwargs` replaces.

    Raises:
        InvalidRequestError: An option that is not known or of a wrong type.
    """
    given = defaults | _checked(kwargs)
    if not given or tokenizer is None:
        return list(prompts)
    options = TokenizationOptions(**given)
    skip = None if options.cuts else cannot_fit
    return [_tokenized(prompt, tokenizer, options, skip) for prompt in prompts]


def _tokenized(
    prompt: PromptInput,
    tokenizer: Tokenizer,
    options: TokenizationOptions,
    cannot_fit: Callable[[str], bool] | None,
) -> PromptInput:
    text = prompt_text(prompt)
    if text is None or (cannot_fit is not None and cannot_fit(text)):
        return prompt  # token ids, or what will be refused
    ids = options.cut(tokenizer.encode(text, add_special_tokens=options.add_special_tokens))
    return with_token_ids(prompt, text, ids)
