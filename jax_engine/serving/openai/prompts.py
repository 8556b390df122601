"""Prompts of requests: one or many, text or token ids."""

import asyncio
from typing import Any

from jax_engine.checks import shown
from jax_engine.engine.conversations import chat_prompts
from jax_engine.engine.prompts import PromptInput
from jax_engine.serving.async_llm import LONG_TEXT
from jax_engine.serving.openai.errors import invalid
from jax_engine.serving.openai.requests import Chat
from jax_engine.serving.openai.service import Service
from jax_engine.serving.openai.tools.inbound import inbound_messages

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


async def engine_prompt(
    service: Service,
    prompt: str | list[int],
    *,
    add_special_tokens: bool = True,
    cache_salt: str | None = None,
) -> PromptInput:
    """A prompt for the engine. A text of any length keeps the event loop free."""
    fields: dict[str, Any] = {"prompt": prompt}
    if isinstance(prompt, list):
        fields = {"prompt_token_ids": prompt}
    elif not add_special_tokens:
        fields["prompt_token_ids"] = await encoded(service, prompt, add_special_tokens=False)
    if cache_salt is not None:
        fields["cache_salt"] = cache_salt
    return fields


async def encoded(service: Service, text: str, *, add_special_tokens: bool) -> list[int]:
    """The token ids of a text."""
    tokenizer = service.tokenizer
    if len(text) > LONG_TEXT:
        return await asyncio.to_thread(
            tokenizer.encode, text, add_special_tokens=add_special_tokens
        )
    return tokenizer.encode(text, add_special_tokens=add_special_tokens)


async def chat_prompt(service: Service, chat: Chat) -> dict[str, Any]:
    """A conversation as `prompt` and `prompt_token_ids`, in another thread.

    Raises:
        InvalidRequestError: messages or options are invalid, or the template refuses them.
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
    options = dict(chat.chat_template_kwargs or {})
    if chat.documents is not None:
        options["documents"] = chat.documents
    if chat.reasoning_effort is not None:
        options.setdefault("reasoning_effort", chat.reasoning_effort)
    [prompt] = await asyncio.to_thread(
        chat_prompts,
        service.tokenizer,
        inbound_messages(chat.messages),
        {"add_special_tokens": chat.add_special_tokens},
        chat_template=chat.chat_template or settings.chat_template,
        add_generation_prompt=chat.add_generation_prompt,
        continue_final_message=chat.continue_final_message,
        tools=chat.tools,
        chat_template_kwargs=options,
    )
    assert isinstance(prompt, dict)
    return prompt
