"""Converts users' conversations to prompts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from jax_engine.checks import shown
from jax_engine.engine.prompts import PromptInput
from jax_engine.engine.tokenization_options import tokenized
from jax_engine.errors import InvalidRequestError, WeightsError
from jax_engine.lora.own_texts import own_template, own_templates
from jax_engine.lora.request import one_lora_each
from jax_engine.tokenization.chat import RefusedByTemplateError
from jax_engine.tokenization.chat_content import ContentFormat, Message
from jax_engine.tokenization.tokenizer import Tokenizer
from jax_engine.typed_fields import check_types

# Arguments of `LLM.chat` or of the tokenizer's template method: no template may take them.
_RESERVED = {
    "add_generation_prompt", "chat_template", "content_format", "continue_final_message",
    "conversation", "messages", "padding", "return_assistant_tokens_mask", "return_dict",
    "return_tensors", "tokenize", "tokenizer_kwargs", "tools", "truncation", "max_length",
}  # fmt: skip


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
    taken = sorted(_RESERVED & more.keys())
    if taken:
        raise InvalidRequestError(
            f"chat_template_kwargs must hold options of the template only, got {', '.join(taken)}: "
            "give what has an argument of its own by that"
        )
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
