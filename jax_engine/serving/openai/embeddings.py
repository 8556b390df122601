"""`/v1/embeddings`."""

import base64
import time
from dataclasses import replace

import numpy as np
from msgspec import Struct
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from jax_engine.engine.prompts import PromptInput
from jax_engine.outputs import PoolingRequestOutput
from jax_engine.serving.openai.errors import aborted, invalid
from jax_engine.serving.openai.prompts import encoded, engine_prompt, prompt_list
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
    params = service.llm.default_pooling("embed")
    if request.dimensions is not None:
        params = replace(params, dimensions=request.dimensions)
    texts = prompt_list("input", request.input)
    service.check_queue(len(texts))
    prompts = [await _prompt(service, request, one) for one in texts]
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
) -> PromptInput:
    special = request.add_special_tokens
    keep = request.truncate_prompt_tokens
    if keep is None:
        return await engine_prompt(service, text, add_special_tokens=special)
    if keep < 1 and keep != -1:
        name = "truncate_prompt_tokens"
        raise invalid(name, f"{name} must be at least 1, or -1, got {keep}")
    ids = text
    if isinstance(ids, str):
        ids = await encoded(service, ids, add_special_tokens=special)
    return ids[-(service.llm.max_model_len - 1 if keep == -1 else keep) :]


def _written(output: PoolingRequestOutput, *, base64_: bool) -> list[float] | str:
    if not output.finished:
        raise aborted("timeout")
    data = np.asarray(output.outputs.data, "<f4")
    return base64.b64encode(data.tobytes()).decode() if base64_ else data.tolist()
