"""What endpoints share whose answers come from a prompt's hidden states, not from new tokens."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Any

from starlette.requests import Request as HttpRequest

from jax_engine.outputs import PoolingRequestOutput
from jax_engine.pooling_params import PoolingParams, PoolingTask
from jax_engine.serving.openai.errors import aborted, invalid
from jax_engine.serving.openai.prompts import chat_prompt, engine_prompt, prompt_list
from jax_engine.serving.openai.requests import InputRequest, PooledRequest
from jax_engine.serving.openai.responses import Usage
from jax_engine.serving.openai.running import for_client, last_of
from jax_engine.serving.openai.service import Service

type Prompt = dict[str, Any]


def params_of(service: Service, task: PoolingTask | None, **given: Any) -> PoolingParams:
    """The engine's defaults, with what the request gives; None: nothing."""
    chosen = {name: value for name, value in given.items() if value is not None}
    return replace(service.llm.default_pooling(task), **chosen)


async def prompts_of(
    service: Service, request: PooledRequest, texts: Sequence[str | list[int]], http: HttpRequest
) -> list[Prompt]:
    """The prompts of texts, each cut as the request says.

    Raises:
        RequestTooLargeError: one is too long.
    """
    keep = checked_keep(service, request)

    async def one(text: str | list[int]) -> Prompt:
        special = adds_special_tokens(request)
        prompt = await engine_prompt(
            service, text, add_special_tokens=special, any_length=keep is not None, room=0
        )
        return as_asked(request, prompt, keep)

    return await for_client(http, gathered([one(text) for text in texts]))


async def prompts_of_input(
    service: Service, request: InputRequest, http: HttpRequest
) -> list[Prompt]:
    """The prompts of a request's `input`, or that of its conversation.

    Raises:
        ApiError: it has both or neither.
        RequestTooLargeError: one is too long.
    """
    chat = request.chat
    if chat is None:
        texts = prompt_list("input", request.input)
        service.check_queue(len(texts))
        return await prompts_of(service, request, texts, http)
    if request.input is not None:
        raise invalid("messages", "messages and input must not be given together")
    service.check_queue()
    keep = checked_keep(service, request)
    made = chat_prompt(service, chat, request, any_length=keep is not None, room=0)
    return [as_asked(request, await for_client(http, made), keep)]


def adds_special_tokens(request: PooledRequest) -> bool:
    """Whether a text gets special tokens: unless the request says no."""
    return request.add_special_tokens is not False


def as_asked(request: PooledRequest, prompt: Prompt, keep: int | None) -> Prompt:
    """A prompt, cut and salted as the request says."""
    if keep is not None:
        ids = prompt["prompt_token_ids"]
        left = request.truncation_side != "right"
        prompt = {"prompt_token_ids": ids[-keep:] if left else ids[:keep]}
    salt = request.cache_salt
    return prompt if salt is None else prompt | {"cache_salt": salt}


async def gathered[T](works: Sequence[Awaitable[T]]) -> list[T]:
    """The results of works that run side by side."""
    return list(await asyncio.gather(*works))


def checked_keep(service: Service, request: PooledRequest) -> int | None:
    """How many of a prompt's tokens are kept; None: all must fit.

    Raises:
        ApiError: the request's `truncate_prompt_tokens` is out of range.
    """
    keep = request.truncate_prompt_tokens
    if keep is not None and keep < 1 and keep != -1:
        name = "truncate_prompt_tokens"
        raise invalid(name, f"{name} must be at least 1, or -1, got {keep}")
    return service.llm.max_model_len if keep == -1 else keep


async def outputs_of(
    service: Service,
    request: PooledRequest,
    prompts: Sequence[Prompt],
    params: PoolingParams,
    http: HttpRequest,
) -> list[PoolingRequestOutput]:
    """What the model makes of prompts.

    Raises:
        ApiError: the request took longer than it may.
    """
    streams = [service.encode(one, params, request, i) for i, one in enumerate(prompts)]
    outputs = await for_client(http, last_of(streams))
    if not all(one.finished for one in outputs):
        raise aborted("timeout")
    return outputs


def usage_of(outputs: Sequence[PoolingRequestOutput]) -> Usage:
    """The tokens of all prompts."""
    tokens = sum(len(one.prompt_token_ids) for one in outputs)
    return Usage(tokens, 0, tokens)
