"""The prompts of requests: one or many, text, token ids, embeddings, or a conversation.

A conversation brings back what a model said before: its calls, the tools' answers, its reasoning.
These are checked here where a template would ignore them.
"""

import asyncio
import base64
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from jax_engine.checks import shown
from jax_engine.engine.requests.prompt_embeds import EmbedsForm, embeds_of
from jax_engine.engine.requests.prompts import chat_texts
from jax_engine.models.checkpoints.pytorch.pytorch_file import read_tensor
from jax_engine.serving.api.api_errors import invalid
from jax_engine.serving.api.endpoint_requests import Chat, ChatRequest
from jax_engine.serving.api.request_fields import Request
from jax_engine.serving.api.service import ServerSettings, Service

MAX_PROMPTS = 2048


def prompt_list(name: str, value: Any) -> list[str | list[int]]:
    """The prompts of a field that holds one or many.

    Raises:
        ApiError: it holds neither.
    """
    many = [value] if _is_prompt(value) else value
    if not isinstance(many, list) or not all(_is_prompt(one) for one in many) or not many:
        raise invalid(
            name,
            f"{name} must be a string, a list of token ids, or a list of either, got "
            f"{shown(value)}",
        )
    if len(many) > MAX_PROMPTS:
        raise invalid(name, f"{name} must hold at most {MAX_PROMPTS} prompts, got {len(many)}")
    return many


def _is_prompt(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(type(one) is int for one in value)
    return isinstance(value, str)


def embeds_list(value: Any) -> list[str]:
    """The texts of `prompt_embeds`, one or many; none if it is not given.

    Raises:
        ApiError: it is something else.
    """
    many = [] if value is None else [value] if isinstance(value, str) else value
    name = "prompt_embeds"
    if not isinstance(many, list) or not all(isinstance(one, str) for one in many):
        message = f"{name} must be base64 of a tensor, or a list of them, got {shown(value)}"
        raise invalid(name, message)
    if len(many) > MAX_PROMPTS:
        raise invalid(name, f"{name} must hold at most {MAX_PROMPTS} prompts, got {len(many)}")
    return many


async def embeds_prompt(
    service: Service, encoded: str, cache_salt: str | None = None
) -> dict[str, Any]:
    """A prompt for the engine of what `torch.save` writes, which a thread reads.

    Raises:
        InvalidRequestError: the engine takes no embeddings, or not these.
    """
    vectors = await asyncio.to_thread(_read_embeds, encoded, service.llm.embeds)
    prompt = {"prompt_embeds": vectors}
    return prompt if cache_salt is None else prompt | {"cache_salt": cache_salt}


def _read_embeds(encoded: str, form: EmbedsForm | None) -> np.ndarray:
    if form is None:
        return embeds_of(None, form)  # it says why not
    try:
        tensor = read_tensor(base64.b64decode(encoded, validate=True))
    except ValueError as error:
        raise invalid(
            "prompt_embeds",
            f"prompt_embeds must be base64 of a tensor that torch.save wrote: {error}",
        ) from None
    return embeds_of(tensor, form)


async def engine_prompt(
    service: Service,
    prompt: str | list[int],
    *,
    add_special_tokens: bool = True,
    any_length: bool = False,
    room: int = 1,
    cache_salt: str | None = None,
) -> dict[str, Any]:
    """A prompt for the engine, with its `prompt_token_ids`.

    Args:
        any_length: Whether it may be longer than a prompt may be, since it will be cut.
        room: As for `TextEncoder.ids`.

    Raises:
        RequestTooLargeError: It is longer.
    """
    fields: dict[str, Any] = {"prompt_token_ids": prompt}
    if isinstance(prompt, str):
        ids = await service.encoder.ids(
            prompt, add_special_tokens=add_special_tokens, any_length=any_length, room=room
        )
        fields = {"prompt": prompt, "prompt_token_ids": ids}
    if cache_salt is not None:
        fields["cache_salt"] = cache_salt
    return fields


async def chat_prompt(
    service: Service,
    chat: Chat,
    asked: Request,
    *,
    any_length: bool = False,
    room: int = 1,
) -> dict[str, Any]:
    """A conversation as `prompt` and `prompt_token_ids`, made in other threads.

    Args:
        asked: The request that brings the conversation. Its adapter's templates come before the
            model's.
        any_length, room: As for `engine_prompt`.

    Raises:
        InvalidRequestError: messages or options are invalid, or the template refuses them.
        RequestTooLargeError: As `engine_prompt`.
    """
    if not chat.messages:
        raise invalid("messages", "messages must hold at least 1 message, got none")
    settings = service.settings
    if chat.chat_template is not None and not settings.trust_request_chat_template:
        raise invalid(
            "chat_template",
            "chat_template must not be given: this server does not run templates of its clients "
            "(it would if started with --trust-request-chat-template)",
        )
    forbids = isinstance(chat, ChatRequest) and chat.tool_choice == "none"
    write = partial(
        chat_texts,
        service.tokenizer,
        inbound_messages(chat.messages),
        lora_request=asked.lora,
        own=asked.own_templates,
        chat_template=chat.chat_template or settings.chat_template,
        add_generation_prompt=chat.add_generation_prompt,
        continue_final_message=chat.continue_final_message,
        tools=None if forbids and settings.exclude_forbidden_tools else chat.tools,
        chat_template_content_format=settings.content_format,
        chat_template_kwargs=_template_options(chat, settings),
    )
    [text] = await service.encoder.beside(write)
    special = chat.add_special_tokens
    return await engine_prompt(
        service, text, add_special_tokens=special, any_length=any_length, room=room
    )


def _template_options(chat: Chat, settings: ServerSettings) -> dict[str, Any]:
    """The request's own options of the template, above those of the server."""
    own = dict(chat.chat_template_kwargs or {})
    if chat.documents is not None:
        own["documents"] = chat.documents
    if chat.reasoning_effort is not None:
        effort = settings.reasoning_efforts.get(chat.reasoning_effort, chat.reasoning_effort)
        own.setdefault("reasoning_effort", effort)
    return {**settings.chat_template_kwargs, **own}


_REASONING = ("reasoning", "reasoning_content")


def inbound_messages(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages for the template, with reasoning under both of its names.

    What any template would refuse is checked there; this checks what a template ignores.

    Raises:
        ApiError: a tool's answer names no call, a call names no tool, or reasoning is no text.
    """
    return [_message(f"messages[{i}]", one) for i, one in enumerate(messages)]


def _message(where: str, message: dict[str, Any]) -> dict[str, Any]:
    if message.get("role") == "tool" and not isinstance(message.get("tool_call_id"), str):
        raise _wrong(f"{where}.tool_call_id", "the id of a call", message.get("tool_call_id"))
    calls = message.get("tool_calls")
    for i, call in enumerate(calls if isinstance(calls, list) else ()):
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping) and not isinstance(function.get("name"), str):
            name = function.get("name")
            raise _wrong(f"{where}.tool_calls[{i}].function.name", "a tool's name", name)
    given = [message[name] for name in _REASONING if message.get(name) is not None]
    if not given:
        return message
    if not isinstance(given[0], str):
        raise _wrong(f"{where}.reasoning", "text", given[0])
    return message | dict.fromkeys(_REASONING, given[0])


def _wrong(where: str, wanted: str, value: object) -> Exception:
    return invalid(where, f"{where} must be {wanted}, got {shown(value)}")
