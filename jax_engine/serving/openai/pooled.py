"""What endpoints share whose answers come from a prompt's hidden states, not from new tokens."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Any

from starlette.requests import Request as HttpRequest

from jax_engine.outputs import PoolingRequestOutput
from jax_engine.pooling_params import PoolingParams, PoolingTask
from jax_engine.serving.openai.errors import aborted, invalid
from jax_engine.serving.openai.prompts import engine_prompt
from jax_engine.serving.openai.requests import PooledRequest
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
        special = request.add_special_tokens
        prompt = await engine_prompt(
            service, text, add_special_tokens=special, any_length=keep is not None, room=0
        )
        return prompt if keep is None else cut(prompt["prompt_token_ids"], keep)

    return await for_client(http, gathered([one(text) for text in texts]))


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


def cut(token_ids: list[int], keep: int) -> Prompt:
    """A prompt of the last tokens."""
    return {"prompt_token_ids": token_ids[-keep:]}


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
