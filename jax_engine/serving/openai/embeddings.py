"""`/v1/embeddings`, `/pooling` and `/classify`."""

import base64
import json
import time
from itertools import accumulate
from typing import Any

import ml_dtypes
import numpy as np
from msgspec import Struct
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from jax_engine.pooling_params import PoolingTask
from jax_engine.serving.openai.errors import invalid
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
    return _vectors(answer, request, Embedding)


async def pool(service: Service, request: PoolingRequest, http: HttpRequest) -> Response:
    """As `LLM.encode`: vectors or scores, for each prompt or for each of its tokens."""
    fields = {"dimensions": request.dimensions, "use_activation": request.is_activated}
    answer = await _pooled(service, request, http, "pooling", request.task, **fields)
    return _vectors(answer, request, Pooled)


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

    Raises:
        ApiError: there are more vectors than a header can describe.
    """
    service.check_model(request)
    params = params_of(service, task, **fields)
    name = answer_id(prefix, request.request_id, http)
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
    return Answers(
        name, "list", int(time.time()), service.name_of(request), data, usage_of(outputs)
    )


def _vectors(
    answer: Answers[Any], request: VectorRequest, kind: type[Embedding] | type[Pooled]
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


def _described(answer: Answers[Any], parts: list[bytes], request: VectorRequest) -> str:
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
