"""`/v1/embeddings`."""

import asyncio
import base64
import time
from typing import Any

import numpy as np
from msgspec import Struct
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from jax_engine.outputs import PoolingRequestOutput
from jax_engine.pooling_params import PoolingParams
from jax_engine.serving.openai.errors import aborted, invalid
from jax_engine.serving.openai.prompts import engine_prompt, prompt_list
from jax_engine.serving.openai.requests import EmbeddingRequest
from jax_engine.serving.openai.responses import Usage, json_response
from jax_engine.serving.openai.running import for_client, last_of
from jax_engine.serving.openai.service import Service, answer_id


class Embedding(Struct):
    """One vector: numbers, or in base64 their bytes as little-endian float32."""

    index: int
    embedding: list[float] | str
    object: str = "embedding"


class Embeddings(Struct):
    """The answer."""

    id: str
    object: str
    created: int
    model: str
    data: list[Embedding]
    usage: Usage


async def embed(service: Service, request: EmbeddingRequest, http: HttpRequest) -> Response:
    """Answers a request."""
    service.check_model(request)
    params = PoolingParams(dimensions=request.dimensions, task="embed")
    texts = prompt_list("input", request.input)
    service.check_queue(len(texts))
    made = asyncio.gather(*(_prompt(service, request, one) for one in texts))
    prompts = await for_client(http, made)
    name = answer_id("embd", request.request_id, http)
    streams = [service.encode(one, params, request, i) for i, one in enumerate(prompts)]
    outputs = await for_client(http, last_of(streams))
    data = [
        Embedding(i, _written(one, base64_=request.encoding_format == "base64"))
        for i, one in enumerate(outputs)
    ]
    tokens = sum(len(one.prompt_token_ids) for one in outputs)
    usage = Usage(tokens, 0, tokens)
    return json_response(Embeddings(name, "list", int(time.time()), service.name, data, usage))


async def _prompt(
    service: Service, request: EmbeddingRequest, text: str | list[int]
) -> dict[str, Any]:
    special, keep = request.add_special_tokens, request.truncate_prompt_tokens
    if keep is None:
        return await engine_prompt(service, text, add_special_tokens=special)
    if keep < 1 and keep != -1:
        name = "truncate_prompt_tokens"
        raise invalid(name, f"{name} must be at least 1, or -1, got {keep}")
    prompt = await engine_prompt(service, text, add_special_tokens=special, any_length=True)
    keep = service.llm.max_model_len - 1 if keep == -1 else keep
    return {"prompt_token_ids": prompt["prompt_token_ids"][-keep:]}


def _written(output: PoolingRequestOutput, *, base64_: bool) -> list[float] | str:
    if not output.finished:
        raise aborted("timeout")
    data = np.asarray(output.outputs.data, "<f4")
    return base64.b64encode(data.tobytes()).decode() if base64_ else data.tolist()
