"""`/v1/embeddings`, `/pooling` and `/classify`."""

import base64
import time
from typing import Any

import ml_dtypes
import numpy as np
from msgspec import Struct
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from jax_engine.pooling_params import PoolingTask
from jax_engine.serving.openai.pooled import outputs_of, params_of, prompts_of_input, usage_of
from jax_engine.serving.openai.requests import (
    ClassifyRequest,
    EmbeddingRequest,
    InputRequest,
    PoolingRequest,
    VectorRequest,
)
from jax_engine.serving.openai.responses import Usage, json_response
from jax_engine.serving.openai.service import Service, answer_id

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


class Pooled(Struct):
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


class Answers[Item](Struct):
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
    answer.data = [Embedding(i, _written(one, request)) for i, one in enumerate(answer.data)]
    return json_response(answer)


async def pool(service: Service, request: PoolingRequest, http: HttpRequest) -> Response:
    """As `LLM.encode`: vectors or scores, for each prompt or for each of its tokens."""
    fields = {"dimensions": request.dimensions, "use_activation": request.is_activated}
    answer = await _pooled(service, request, http, "pooling", request.task, **fields)
    answer.data = [Pooled(i, _written(one, request)) for i, one in enumerate(answer.data)]
    return json_response(answer)


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
) -> Answers[Any]:
    """An answer whose data are arrays, to be written.

    Args:
        prefix: of its id.
        fields: of `PoolingParams`; None: the engine's default.
    """
    service.check_model(request)
    params = params_of(service, task, **fields)
    name = answer_id(prefix, request.request_id, http)
    prompts = await prompts_of_input(service, request, http)
    outputs = await outputs_of(service, request, prompts, params, http)
    data = [np.asarray(one.outputs.data) for one in outputs]
    return Answers(name, "list", int(time.time()), service.name, data, usage_of(outputs))


def _written(data: np.ndarray, request: VectorRequest) -> Any:
    if request.encoding_format == "float":
        return data.astype(np.float32).tolist()
    numbers = data.astype(_DTYPES[request.embed_dtype])
    if request.endianness == "big":  # all machines that this runs on are little-endian
        numbers = numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode()
