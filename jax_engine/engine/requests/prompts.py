"""Converts users' prompts and conversations to token ids, before anything is allocated.

A text that cannot fit is refused by its length, before it is tokenised (`TextLength`).
`tokenization_kwargs` say how the texts of one call become token ids, with Hugging Face's names
(`TokenizationOptions`). Conversations become prompts by a chat template (`chat_prompts`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from jax_engine.checks import check_integer, check_types, named_fields, shown
from jax_engine.core.admission import prompt_too_long
from jax_engine.engine.requests.prompt_embeds import EmbedsForm, embeds_of
from jax_engine.errors import InvalidRequestError, WeightsError
from jax_engine.lora.adapter_templates import own_template, own_templates
from jax_engine.lora.request import one_lora_each
from jax_engine.tokenization.chat_content import ContentFormat, Message
from jax_engine.tokenization.chat_template import RefusedByTemplateError
from jax_engine.tokenization.least_tokens import LeastTokens
from jax_engine.tokenization.tokenizer import Tokenizer

PromptInput = str | Sequence[int] | Mapping[str, Any]

_KEYS = {
    "prompt", "prompt_token_ids", "prompt_embeds", "cache_salt", "prediction", "token_type_ids",
}  # fmt: skip
# Other keys of vLLM: accepted if their value is empty
_UNUSED = {
    "multi_modal_data", "mm_processor_kwargs", "multi_modal_uuids", "prompt_is_token_ids",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Prompt:
    """A checked prompt.

    Attributes:
        text: None if only token ids were given.
        cache_salt: Prompts share cached blocks only with prompts of the same salt.
        prediction: Tokens that the output is expected to have; guesses come from them.
        token_type_ids: The type of each token, for an encoder that was trained with some: of two
            texts, the second one's tokens have type 1. None: all are 0.
        embeds: What the first layer reads at each position, in place of the vectors of `token_ids`,
            which are zeros then; None: the prompt is of tokens.
    """

    text: str | None
    token_ids: list[int]
    cache_salt: str | None = None
    prediction: list[int] = field(default_factory=list)
    token_type_ids: list[int] | None = None
    embeds: Float[np.ndarray, "n E"] | None = None

    @property
    def known_ids(self) -> list[int]:
        """The tokens that the text of an output goes on behind; none of embeddings."""
        return self.token_ids if self.embeds is None else []


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
    prompt: PromptInput,
    tokenizer: Tokenizer | None,
    vocab_size: int,
    predicted: int = 0,
    token_types: int = 0,
    embeds: EmbedsForm | None = None,
) -> Prompt:
    """Converts one prompt to token ids, or its embeddings to the engine's.

    Args:
        predicted: The tokens of its prediction that count, at most; 0: nobody reads it.
        token_types: How many types of tokens the model knows.
        embeds: How embeddings are taken; None: they are refused.

    Raises:
        InvalidRequestError: It is empty or of a wrong type, is text without a tokenizer, or has an
            id outside of the vocabulary, or a type that the model does not know.
    """
    text, token_ids, salt = _fields(prompt)
    if isinstance(prompt, Mapping) and prompt.get("prompt_embeds") is not None:
        return _of_embeds(prompt, embeds)
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
    prediction: list[int] = []
    if isinstance(prompt, Mapping) and prompt.get("prediction") is not None:
        prediction = _prediction(prompt, tokenizer, vocab_size, predicted)
    types = _token_types(prompt, len(ids), token_types) if isinstance(prompt, Mapping) else None
    return Prompt(text, ids, salt, prediction, types)


def _of_embeds(prompt: Mapping[str, Any], form: EmbedsForm | None) -> Prompt:
    """A prompt of embeddings. Its text is only what `RequestOutput.prompt` says."""
    text, token_ids, salt = _fields(prompt)
    for name, given in [("prompt_token_ids", token_ids), ("prediction", prompt.get("prediction"))]:
        if not _is_empty(given):
            raise InvalidRequestError(
                f"{name} must be left out beside prompt_embeds, got {shown(given)}: such a prompt "
                "has no tokens"
            )
    _token_types(prompt, 0, 0)
    if text is not None:
        if not isinstance(text, str):
            raise InvalidRequestError(f"prompt must be a string, got {type(text).__name__}")
        _valid_unicode("prompt", text)
    vectors = embeds_of(prompt["prompt_embeds"], form)
    return Prompt(text, [0] * len(vectors), salt, embeds=vectors)


def _token_types(prompt: Mapping[str, Any], length: int, known: int) -> list[int] | None:
    given = prompt.get("token_type_ids")
    if _is_empty(given):
        return None
    if not known:
        raise InvalidRequestError(
            f"token_type_ids must be None, got {shown(given)}: this model knows no types of tokens"
        )
    types = _checked_ids("token_type_ids", given, known)
    if len(types) != length:
        raise InvalidRequestError(
            f"token_type_ids must have a type for each of the {length} tokens, got {len(types)}"
        )
    return types


def truncate_prompt(prompt: Prompt, keep: int | None, max_model_len: int) -> Prompt:
    """Keeps the prompt's last `keep` tokens; None: all; -1: max_model_len - 1 of them."""
    if keep is None:
        return prompt
    keep = max_model_len - 1 if keep == -1 else keep
    if keep >= len(prompt.token_ids):
        return prompt
    types = prompt.token_type_ids
    types = None if types is None else types[-keep:]
    embeds = None if prompt.embeds is None else prompt.embeds[-keep:]
    ids = prompt.token_ids[-keep:]
    return replace(prompt, token_ids=ids, token_type_ids=types, embeds=embeds)


def _fields(prompt: PromptInput) -> tuple[Any, Any, str | None]:
    if isinstance(prompt, str | bytes):  # bytes are a sequence of integers, but not of token ids
        return prompt, None, None
    if not isinstance(prompt, Mapping):
        return None, prompt, None
    unknown = {
        key for key in prompt
        if key not in _KEYS and not (key in _UNUSED and _is_empty(prompt[key]))
    }  # fmt: skip
    if unknown or not set(prompt) & {"prompt", "prompt_token_ids", "prompt_embeds"}:
        raise InvalidRequestError(
            "a prompt dict must have 'prompt', 'prompt_token_ids' or 'prompt_embeds' (and may have "
            "'cache_salt' and 'prediction'), got the keys "
            f"{shown(sorted(map(str, prompt)))}"
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
    """The text to tokenize; None if there are ids or embeddings, or the prompt is invalid."""
    text, token_ids, _ = _fields(prompt)
    if isinstance(prompt, Mapping) and prompt.get("prompt_embeds") is not None:
        return None
    if token_ids is not None or not isinstance(text, str):
        return None
    return _valid_unicode("prompt", text)


def prediction_text(prompt: PromptInput) -> str | None:
    """The text of a prompt's prediction; None if there are token ids, or nothing."""
    given = prompt.get("prediction") if isinstance(prompt, Mapping) else None
    return _valid_unicode("prediction", given) if isinstance(given, str) else None


def _prediction(
    prompt: Mapping[str, Any], tokenizer: Tokenizer | None, vocab_size: int, most: int
) -> list[int]:
    text, given = prediction_text(prompt), prompt["prediction"]
    if text is not None and tokenizer is not None:
        return tokenizer.encode(text, add_special_tokens=False)[:most] if most else []
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


class TextLength:
    """What is known of a text's tokens without tokenising it.

    Args:
        max_model_len: The longest prompt plus output, in tokens.
    """

    def __init__(self, tokenizer: Tokenizer, max_model_len: int) -> None:
        self._tokenizer, self._max_model_len = tokenizer, max_model_len

    @cached_property
    def _least(self) -> LeastTokens:
        return LeastTokens.of(self._tokenizer.backend)  # 70 ms for 50,000 tokens

    def of_text(self, text: str) -> int:
        """The fewest tokens of a text; 0 for one that is too short to matter."""
        return self._least.of_text(text) if len(text) >= self._max_model_len else 0

    def check(self, text: str, room: int = 1) -> None:
        """Refuses a text that cannot fit.

        Args:
            room: The tokens of output that must fit, too.

        Raises:
            RequestTooLargeError: It has more tokens than a prompt may have, however it is split.
        """
        least = self.of_text(text)
        if least > self._max_model_len - room:
            raise prompt_too_long(least, self._max_model_len, room, "at least ")

    def beginning(self, text: str, count: int) -> str:
        """A text's beginning, which has its first tokens, so many at least; all if unsure."""
        if len(text) <= count:
            return text
        most = count * self._least.longest * self._least.shrink
        return text[:most] if most else text

    def cannot_fit(self, text: str) -> bool:
        """Whether no request may have this prompt."""
        return self.of_text(text) > self._max_model_len


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

    def cut(self, token_ids: list[int], around: tuple[int, int] = (0, 0)) -> list[int]:
        """The tokens that are kept.

        Args:
            around: as for `cut_tokens`.
        """
        if self.truncate_prompt_tokens is not None:
            return cut_tokens(token_ids, self.truncate_prompt_tokens, left=True, around=around)
        if not self.truncation or self.max_length is None:
            return token_ids
        left = self.truncation_side == "left"
        return cut_tokens(token_ids, self.max_length, left=left, around=around)


def cut_tokens(
    tokens: list[int], keep: int, *, left: bool, around: tuple[int, int] = (0, 0)
) -> list[int]:
    """At most `keep` of the tokens, or of numbers that belong to them.

    Args:
        left: Cut what comes first, else what comes last.
        around: How many special tokens at either end stay, if there is room for others: an
            encoder's embedding may be the state of the first one.
    """
    if len(tokens) <= keep:
        return tokens
    front, back = around if sum(around) < keep else (0, 0)
    end, room = len(tokens) - back, keep - front - back
    text = tokens[end - room : end] if left else tokens[front : front + room]
    return tokens[:front] + text + tokens[end:]


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
    keeps_around: bool = False,
    **defaults: Any,
) -> list[PromptInput]:
    """The prompts, with token ids beside each text; the same ones where nothing is asked for.

    Args:
        keeps_around: Whether special tokens around a text that is cut stay: see `cut_tokens`.
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
    keeps = keeps_around and options.cuts and options.add_special_tokens
    around = tokenizer.around if keeps else (0, 0)
    return [_tokenized(prompt, tokenizer, options, skip, around) for prompt in prompts]


def _tokenized(
    prompt: PromptInput,
    tokenizer: Tokenizer,
    options: TokenizationOptions,
    cannot_fit: Callable[[str], bool] | None,
    around: tuple[int, int],
) -> PromptInput:
    text = prompt_text(prompt)
    if text is None or (cannot_fit is not None and cannot_fit(text)):
        return prompt  # token ids, or what will be refused
    ids = tokenizer.encode(text, add_special_tokens=options.add_special_tokens)
    ids = options.cut(ids, around)
    return with_token_ids(prompt, text, ids)


# Arguments of `LLM.chat` or of the tokenizer's template method: no template may take them.
_RESERVED = {
    "add_generation_prompt", "chat_template", "content_format", "continue_final_message",
    "conversation", "messages", "padding", "return_assistant_tokens_mask", "return_dict",
    "return_tensors", "tokenize", "tokenizer_kwargs", "tools", "truncation", "max_length",
}  # fmt: skip


def check_template_options(options: Mapping[str, Any]) -> None:
    """
    Raises:
        InvalidRequestError: One of them is no option of a template.
    """
    taken = sorted(_RESERVED & options.keys())
    if taken:
        raise InvalidRequestError(
            f"chat_template_kwargs must hold options of the template only, got {', '.join(taken)}: "
            "give what has an argument of its own by that"
        )


@dataclass(kw_only=True)
class ChatOptions:
    """The options of `LLM.chat`, which explains them."""

    chat_template: str | None = None
    chat_template_content_format: ContentFormat = "auto"
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    tools: list[Any] | None = None
    chat_template_kwargs: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        check_types(self, InvalidRequestError)


def chat_prompts(
    tokenizer: Tokenizer,
    messages: Sequence[Message] | Sequence[Sequence[Message]],
    tokenization_kwargs: Mapping[str, Any] | None,
    *,
    cannot_fit: Callable[[str], bool] | None = None,
    **options: Any,
) -> list[PromptInput]:
    """Converts one conversation, or each of several, to a prompt.

    The template writes the beginning-of-sequence token if the model wants one. So the tokenizer
    adds none.

    Args:
        tokenization_kwargs, cannot_fit: As in `tokenized`.

    Other arguments and errors are those of `chat_texts`.
    """
    prompts: list[PromptInput] = [
        {"prompt": text} for text in chat_texts(tokenizer, messages, **options)
    ]
    return tokenized(
        prompts, tokenizer, tokenization_kwargs, cannot_fit=cannot_fit, add_special_tokens=False
    )


def chat_texts(
    tokenizer: Tokenizer,
    messages: Sequence[Message] | Sequence[Sequence[Message]],
    *,
    lora_request: Any = None,
    own: Mapping[str, str] | None = None,
    **options: Any,
) -> list[str]:
    """Writes one conversation, or each of several, as the text of a prompt.

    Args:
        messages: A list of dicts with "role" and "content", or several such lists.
        lora_request: As for `LLM.chat`; of these adapters the templates are used, if they have any
            and `chat_template` is None.
        own: These templates, by name; None: they are read from the adapters' folders.
        options: Fields of `ChatOptions`.

    Raises:
        ConfigError: The model has no chat template and none was given.
        InvalidRequestError: The messages or the options are invalid, or a template refuses them.
            The error says which of several conversations is meant, and whose template refuses it
            if that is an adapter's.
    """
    checked = ChatOptions(**options)
    more = dict(checked.chat_template_kwargs or {})
    check_template_options(more)
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise InvalidRequestError(
            "messages must be a list of dicts with role and content, or a list of such lists, got "
            f"{shown(messages)}"
        )
    one_only = bool(messages) and isinstance(messages[0], Mapping)
    conversations: Any = [messages] if one_only else messages
    texts: list[str] = []
    templates = _templates_each(tokenizer, lora_request, own, checked, len(conversations))
    for i, (conversation, (template, whose)) in enumerate(
        zip(conversations, templates, strict=True)
    ):
        try:
            text = tokenizer.apply_chat_template(
                conversation,
                tokenize=False,
                chat_template=template,
                content_format=checked.chat_template_content_format,
                add_generation_prompt=checked.add_generation_prompt,
                continue_final_message=checked.continue_final_message,
                tools=checked.tools,
                **more,
            )
        except InvalidRequestError as error:
            where = "" if one_only else f"conversation {i}: "
            if whose is not None and isinstance(error, RefusedByTemplateError):
                where += f"lora_request {whose!r}: "
            raise InvalidRequestError(f"{where}{error}") from error
        texts.append(text)
    return texts


def _templates_each(
    tokenizer: Tokenizer,
    lora_request: Any,
    own: Mapping[str, str] | None,
    options: ChatOptions,
    count: int,
) -> list[tuple[str | None, str | None]]:
    """The template of each conversation: what is given, else its adapter's; None: the model's.

    Beside it the adapter's name, if it is the adapter's.

    Raises:
        InvalidRequestError: They are no adapters, or not as many, or a folder is damaged.
    """
    with_tools = bool(options.tools)

    @cache
    def of(path: str) -> str | None:
        templates = own_templates(path, tokenizer) if own is None else own
        return own_template(templates, with_tools=with_tools)

    given = options.chat_template
    found: list[tuple[str | None, str | None]] = []
    for one in one_lora_each(lora_request, count):
        if given or one is None or not one.lora_path:
            found.append((given, None))
            continue
        try:
            template = of(one.lora_path)
        except WeightsError as error:
            raise InvalidRequestError(f"lora_request {one.lora_name!r}: {error}") from error
        found.append((template, template and one.lora_name))
    return found
