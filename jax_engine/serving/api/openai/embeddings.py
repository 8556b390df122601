"""`/v1/embeddings`, `/pooling` and `/classify`, and what endpoints that pool share with `/score`.

Their answers come from a prompt's hidden states, not from new tokens.
"""

import asyncio
import base64
import json
import time
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import ml_dtypes
import numpy as np
from msgspec import Struct
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from jax_engine.engine.pooling.ranking import Ranked, check_marks, encoded_together
from jax_engine.engine.requests.prompts import cut_tokens
from jax_engine.outputs import PoolingRequestOutput
from jax_engine.pooling_params import PoolingParams, PoolingTask
from jax_engine.serving.api.api_errors import aborted, invalid
from jax_engine.serving.api.endpoint_requests import (
    ClassifyRequest,
    EmbeddingRequest,
    InputRequest,
    PooledRequest,
    PoolingRequest,
    VectorRequest,
)
from jax_engine.serving.api.endpoint_responses import Usage, json_response
from jax_engine.serving.api.request_prompts import chat_prompt, engine_prompt, prompt_list
from jax_engine.serving.api.service import Service, answer_id
from jax_engine.serving.api.streaming import for_client, last_of

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
        around = service.llm.kept_around if special and isinstance(text, str) else (0, 0)
        return cut_and_salted(request, prompt, keep, around)

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
    return [cut_and_salted(request, await for_client(http, made), keep)]


async def prompt_together(
    service: Service, request: PooledRequest, asked: Ranked, http: HttpRequest
) -> Prompt:
    """A query and its documents as the one prompt of a model that ranks them.

    Raises:
        RequestTooLargeError: it is too long.
        InvalidRequestError: the request cuts documents away.
    """
    prompts = await prompts_of(service, request, [asked.text], http)
    check_marks(service.tokenizer, prompts[0]["prompt_token_ids"], len(asked.documents))
    return prompts[0]


def adds_special_tokens(request: PooledRequest) -> bool:
    """Whether a text gets special tokens: unless the request says no."""
    return request.add_special_tokens is not False


def cut_and_salted(
    request: PooledRequest, prompt: Prompt, keep: int | None, around: tuple[int, int] = (0, 0)
) -> Prompt:
    """A prompt, cut and salted as the request says.

    Args:
        around: as for `cut_tokens`.
    """
    if keep is not None:
        left = request.truncation_side != "right"
        prompt = {
            name: cut_tokens(prompt[name], keep, left=left, around=around)
            for name in ("prompt_token_ids", "token_type_ids")
            if name in prompt
        }
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


MAX_DESCRIBED = 400  # vectors that a header of 64 KiB describes
_DTYPES = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "fp8_e4m3": ml_dtypes.float8_e4m3fn,
    "fp8_e5m2": ml_dtypes.float8_e5m2,
}


class Embedding(Struct):
    """One vector: numbers, or in base64 their bytes, as little-endian float32 unless the request
    names another type or order."""

    index: int
    embedding: list[float] | str
    object: str = "embedding"


class PoolingItem(Struct):
    """One vector, or one for each token, as `Embedding` writes them; or the scores of a head."""

    index: int
    data: Any
    object: str = "pooling"


class Class(Struct):
    """The most probable label, and the probabilities of all."""

    index: int
    label: str
    probs: list[float]
    num_classes: int


class PooledResponse[Item](Struct):
    """The answer: an item for each prompt."""

    id: str
    object: str
    created: int
    model: str
    data: list[Item]
    usage: Usage


async def embed(service: Service, request: EmbeddingRequest, http: HttpRequest) -> Response:
    """One vector for each prompt."""
    fields = {"dimensions": request.dimensions, "use_activation": request.is_activated}
    answer = await _pooled(service, request, http, "embd", "embed", **fields)
    return _vectors(answer, request, Embedding)


async def pool(service: Service, request: PoolingRequest, http: HttpRequest) -> Response:
    """As `LLM.encode`: vectors or scores, for each prompt or for each of its tokens."""
    fields = {"dimensions": request.dimensions, "use_activation": request.is_activated}
    answer = await _pooled(service, request, http, "pooling", request.task, **fields)
    return _vectors(answer, request, PoolingItem)


async def classify(service: Service, request: ClassifyRequest, http: HttpRequest) -> Response:
    """The probabilities of a head's labels, for each prompt."""
    activation, labels = request.is_activated, service.llm.labels
    answer = await _pooled(
        service, request, http, "classify", "classify", use_activation=activation
    )
    answer.data = [
        Class(i, labels[int(one.argmax())], one.tolist(), len(labels))
        for i, one in enumerate(answer.data)
    ]
    return json_response(answer)


async def _pooled(
    service: Service,
    request: InputRequest,
    http: HttpRequest,
    prefix: str,
    task: PoolingTask | None,
    **fields: Any,
) -> PooledResponse[Any]:
    """An answer whose data are arrays, to be written.

    Args:
        prefix: what the answer's id begins with.
        fields: fields of `PoolingParams`; None: the engine's default.

    Raises:
        ApiError: there are more vectors than a header can describe.
    """
    service.check_model(request)
    params = params_of(service, task, **fields)
    name = answer_id(prefix, request.request_id, http)
    if service.llm.ranks and task in (None, "token_embed"):
        prompts = [await _input_together(service, request, http)]
    else:
        prompts = await prompts_of_input(service, request, http)
    described = getattr(request, "encoding_format", None) == "bytes"
    if described and len(prompts) > MAX_DESCRIBED:
        raise invalid(
            "encoding_format",
            "encoding_format 'bytes' describes each vector in a header, of which clients read "
            f"64 KiB: for {MAX_DESCRIBED} inputs, got {len(prompts)}. 'bytes_only' does not",
        )
    outputs = await outputs_of(service, request, prompts, params, http)
    data = [np.asarray(one.outputs.data) for one in outputs]
    return PooledResponse(
        name, "list", int(time.time()), service.name_of(request), data, usage_of(outputs)
    )


async def _input_together(service: Service, request: InputRequest, http: HttpRequest) -> Prompt:
    """Documents and the query behind them, as one prompt. Raises as `prompt_together`, ApiError."""
    if request.messages is not None:
        raise invalid("messages", "messages must not be given to a model that ranks documents")
    service.check_queue()
    asked = encoded_together(prompt_list("input", request.input))
    return await prompt_together(service, request, asked, http)


def _vectors(
    answer: PooledResponse[Any], request: VectorRequest, kind: type[Embedding] | type[PoolingItem]
) -> Response:
    """An answer's arrays as the request wants them: as JSON, or as bytes alone."""
    if request.encoding_format not in ("bytes", "bytes_only"):
        answer.data = [kind(i, _written(one, request)) for i, one in enumerate(answer.data)]
        return json_response(answer)
    parts = [_bytes_of(one, request) for one in answer.data]
    headers = {}
    if request.encoding_format == "bytes":
        headers["metadata"] = _described(answer, parts, request)
    return Response(b"".join(parts), media_type="application/octet-stream", headers=headers)


def _described(answer: PooledResponse[Any], parts: list[bytes], request: VectorRequest) -> str:
    """Where each vector is in the bytes, and what else JSON would say; vLLM's fields."""
    ends = list(accumulate(map(len, parts)))
    items = [
        {
            "index": i,
            "embed_dtype": request.embed_dtype,
            "endianness": request.endianness,
            "start": end - len(part),
            "end": end,
            "shape": array.shape,
        }
        for i, (array, part, end) in enumerate(zip(answer.data, parts, ends, strict=True))
    ]
    usage = {name: getattr(answer.usage, name) for name in ("prompt_tokens", "total_tokens")}
    about = {"id": answer.id, "created": answer.created, "model": answer.model}
    return json.dumps(about | {"data": items, "usage": usage})


def _written(data: np.ndarray, request: VectorRequest) -> Any:
    if request.encoding_format == "float":
        return data.astype(np.float32).tolist()
    return base64.b64encode(_bytes_of(data, request)).decode()


def _bytes_of(data: np.ndarray, request: VectorRequest) -> bytes:
    numbers = data.astype(_DTYPES[request.embed_dtype])
    if request.endianness == "big":  # all machines that this runs on are little-endian
        numbers = numbers.byteswap()
    return numbers.tobytes()
