"""Converts users' prompts to token ids, and checks them before anything is allocated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from jax_engine.checks import shown
from jax_engine.errors import InvalidRequestError
from jax_engine.tokenization.tokenizer import Tokenizer

PromptInput = str | Sequence[int] | Mapping[str, Any]

_KEYS = {"prompt", "prompt_token_ids", "cache_salt", "prediction"}
# Other keys of vLLM: accepted if their value is empty
_UNUSED = {"multi_modal_data", "mm_processor_kwargs", "multi_modal_uuids", "token_type_ids"}


@dataclass(frozen=True, slots=True)
class Prompt:
    """A checked prompt.

    Attributes:
        text: None if only token ids were given.
        cache_salt: Prompts share cached blocks only with prompts of the same salt.
        prediction: Tokens that the output is expected to have; guesses come from them.
    """

    text: str | None
    token_ids: list[int]
    cache_salt: str | None = None
    prediction: list[int] = field(default_factory=list)


def as_prompt_list(prompts: Any) -> list[PromptInput]:
    """One prompt or many, as a list.

    A list of integers is one prompt; a list of strings, dicts or lists is many.
    """
    if isinstance(prompts, str | bytes | Mapping):
        return [prompts]
    if isinstance(prompts, np.ndarray):
        prompts = prompts.tolist()
    if not isinstance(prompts, Sequence):
        raise InvalidRequestError(
            "prompts must be a string, token ids, a dict with 'prompt' or 'prompt_token_ids', or "
            f"a list of them, got {type(prompts).__name__}"
        )
    if prompts and all(_is_integer(item) for item in prompts):
        return [prompts]
    return list(prompts)


def parse_prompt(
    prompt: PromptInput, tokenizer: Tokenizer | None, vocab_size: int, predicted: int = 0
) -> Prompt:
    """Converts one prompt to token ids.

    Args:
        predicted: The tokens of its prediction that count, at most; 0: nobody reads it.

    Raises:
        InvalidRequestError: It is empty or of a wrong type, is text without a tokenizer, or has an
            id outside of the vocabulary.
    """
    text, token_ids, salt = _fields(prompt)
    if token_ids is None:
        if not isinstance(text, str):
            raise InvalidRequestError(f"prompt must be a string, got {type(text).__name__}")
        if tokenizer is None:
            raise InvalidRequestError(
                "prompt is text, but the engine has no tokenizer (skip_tokenizer_init=True): "
                "give prompt_token_ids"
            )
        token_ids = tokenizer.encode(_valid_unicode("prompt", text))
    elif text is not None and not isinstance(text, str):
        raise InvalidRequestError(f"prompt must be a string, got {type(text).__name__}")
    ids = _checked_ids("prompt_token_ids", token_ids, vocab_size)
    if not ids:
        raise InvalidRequestError("prompt must have at least 1 token, got an empty prompt")
    return Prompt(text, ids, salt, _prediction(prompt, tokenizer, vocab_size, predicted))


def truncate_prompt(prompt: Prompt, keep: int | None, max_model_len: int) -> Prompt:
    """Keeps the prompt's last `keep` tokens; None: all; -1: max_model_len - 1 of them."""
    if keep is None:
        return prompt
    ids = prompt.token_ids[-(max_model_len - 1 if keep == -1 else keep) :]
    return prompt if len(ids) == len(prompt.token_ids) else replace(prompt, token_ids=ids)


def _fields(prompt: PromptInput) -> tuple[Any, Any, str | None]:
    if isinstance(prompt, str | bytes):  # bytes are a sequence of integers, but not of token ids
        return prompt, None, None
    if not isinstance(prompt, Mapping):
        return None, prompt, None
    unknown = {
        key for key in prompt
        if key not in _KEYS and not (key in _UNUSED and _is_empty(prompt[key]))
    }  # fmt: skip
    if unknown or not set(prompt) & {"prompt", "prompt_token_ids"}:
        raise InvalidRequestError(
            "a prompt dict must have 'prompt' or 'prompt_token_ids' (and may have 'cache_salt' "
            f"and 'prediction'), got the keys {shown(sorted(map(str, prompt)))}"
        )
    salt = prompt.get("cache_salt")
    if salt is not None and not isinstance(salt, str):
        raise InvalidRequestError(f"cache_salt must be a string, got {shown(salt)}")
    if salt is not None:
        _valid_unicode("cache_salt", salt)
    return prompt.get("prompt"), prompt.get("prompt_token_ids"), salt


def _is_empty(value: Any) -> bool:
    """None or an empty collection. An array has no truth that could be asked instead."""
    return value is None or (isinstance(value, Mapping | Sequence) and len(value) == 0)


def prompt_text(prompt: PromptInput) -> str | None:
    """The text to tokenize; None if there are token ids, or the prompt is invalid."""
    text, token_ids, _ = _fields(prompt)
    if token_ids is not None or not isinstance(text, str):
        return None
    return _valid_unicode("prompt", text)


def prediction_text(prompt: PromptInput) -> str | None:
    """The text of a prompt's prediction; None if there are token ids, or nothing."""
    given = prompt.get("prediction") if isinstance(prompt, Mapping) else None
    return _valid_unicode("prediction", given) if isinstance(given, str) else None


def _prediction(
    prompt: PromptInput, tokenizer: Tokenizer | None, vocab_size: int, most: int
) -> list[int]:
    text = prediction_text(prompt)
    if text is not None and tokenizer is not None:
        return tokenizer.encode(text, add_special_tokens=False)[:most] if most else []
    given = prompt.get("prediction") if isinstance(prompt, Mapping) else None
    if given is None:
        return []
    if isinstance(given, bytes):  # a sequence of integers, but not of token ids
        raise InvalidRequestError(
            f"prediction must be a string or a list of token ids, got {shown(given)}"
        )
    if text is not None:
        raise InvalidRequestError(
            "prediction is text, but the engine has no tokenizer (skip_tokenizer_init=True): "
            "give its token ids"
        )
    return _checked_ids("prediction", given, vocab_size)[:most]


def with_token_ids(prompt: PromptInput, text: str, token_ids: list[int]) -> dict[str, Any]:
    """A prompt of text, with the ids that its text was converted to."""
    others = dict(prompt) if isinstance(prompt, Mapping) else {}
    return {**others, "prompt": text, "prompt_token_ids": token_ids}


def with_prediction(prompt: PromptInput, token_ids: list[int]) -> dict[str, Any]:
    """A prompt whose prediction is text, with the ids that the text was converted to."""
    assert isinstance(prompt, Mapping), "it has a prediction"
    return {**prompt, "prediction": token_ids}


def _checked_ids(name: str, token_ids: Any, vocab_size: int) -> list[int]:
    if isinstance(token_ids, np.ndarray):
        token_ids = token_ids.tolist()
    sequence = isinstance(token_ids, Sequence)
    plain = sequence and set(map(type, token_ids)) <= {int}
    if not plain and not (sequence and all(_is_integer(one) for one in token_ids)):
        raise InvalidRequestError(f"{name} must be a list of integers, got {shown(token_ids)}")
    ids = list(token_ids) if plain else [int(token) for token in token_ids]
    if ids and min(ids) >= 0 and max(ids) < vocab_size:
        return ids
    for at, token in enumerate(ids):
        if not 0 <= token < vocab_size:
            raise InvalidRequestError(
                f"{name}[{at}] must be in [0, {vocab_size - 1}], got {shown(token)}"
            )
    return ids


def _valid_unicode(name: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            f"{name} must be valid Unicode, got a lone surrogate at character {error.start}"
        ) from None
    return text


def _is_integer(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
