"""The paths of the server, and the endpoint of each.

The endpoints that load and unload LoRA adapters are here, with vLLM's names and fields, and so are
the parts of the OpenAPI document that FastAPI cannot know.
"""

from typing import Annotated, Any

from fastapi import Body, FastAPI
from pydantic import BaseModel, Field
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response

import jax_engine
from jax_engine.lora.request import LoRARequest
from jax_engine.serving.api.anthropic.messages_request import CountRequest, MessagesRequest
from jax_engine.serving.api.anthropic.messages_stream import count_tokens, message
from jax_engine.serving.api.api_errors import (
    ApiError,
    add_error_handlers,
    api_error,
    engine_dead,
    invalid,
)
from jax_engine.serving.api.endpoint_requests import (
    SIDES,
    ChatRequest,
    ClassifyRequest,
    CompletionRequest,
    DetokenizeRequest,
    EmbeddingRequest,
    PoolingRequest,
    RerankRequest,
    ScoreRequest,
    TokenizeChatRequest,
    TokenizeTextRequest,
)
from jax_engine.serving.api.endpoint_responses import json_response
from jax_engine.serving.api.middleware import (
    BodyGuard,
    ExpectGuard,
    KeyGuard,
    RequestIds,
    RootPath,
    Slashes,
    StaggeredStart,
)
from jax_engine.serving.api.openai.chat_completions import chat
from jax_engine.serving.api.openai.completions import complete
from jax_engine.serving.api.openai.embeddings import classify, embed, pool
from jax_engine.serving.api.openai.responses_request import ResponsesRequest
from jax_engine.serving.api.openai.responses_stream import respond
from jax_engine.serving.api.openai.scores import rerank, score
from jax_engine.serving.api.openai.tokenize_endpoints import detokenize, tokenize, tokenizer_info
from jax_engine.serving.api.request_fields import Body as RequestBody
from jax_engine.serving.api.request_fields import Fields
from jax_engine.serving.api.service import Service
from jax_engine.serving.api.streaming import ClientDisconnected
from jax_engine.serving.api.web_page import add_page
from jax_engine.serving.served_adapters import LoRAModule, may_update
from jax_engine.serving.stat_loggers import CONTENT_TYPE, MetricsPage

CLIENT_CLOSED = 499  # nobody reads this answer


def make_app(service: Service) -> FastAPI:
    """The server without a port."""
    errors: dict[int | str, Any] = {"4XX": ERROR_DOCUMENT, "5XX": ERROR_DOCUMENT}
    settings = service.settings
    app = FastAPI(
        title="jax-engine",
        redoc_url=None,
        version=_version(),
        responses=errors,
        openapi_url="/openapi.json" if settings.has_docs else None,  # without it, no /docs either
    )
    add_error_handlers(app)
    app.add_exception_handler(ClientDisconnected, _client_closed)
    _add_models(app, service)
    if may_update():
        add_lora_endpoints(app, service)
    _add_state(app, service)
    add_page(app, service)
    _add_generation(app, service)
    _add_pooling(app, service)
    _add_tokens(app, service)
    _add_invocations(app, service)
    app.add_middleware(BodyGuard, limit=settings.max_body_bytes)
    if settings.api_keys:
        app.add_middleware(KeyGuard, keys=settings.api_keys)
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.allowed_origins,
            allow_methods=settings.allowed_methods,
            allow_headers=settings.allowed_headers,
            allow_credentials=settings.allow_credentials,
        )
    app.add_middleware(ExpectGuard)
    app.add_middleware(StaggeredStart)
    if settings.request_id_headers:
        app.add_middleware(RequestIds)
    if settings.root_path:
        app.add_middleware(RootPath, prefix=settings.root_path)
    app.add_middleware(Slashes)
    for one in settings.middleware:
        app.user_middleware.insert(0, one)  # the first of the list is the outermost
    return app


def _version() -> str:
    return str(jax_engine.__version__)


async def _client_closed(request: HttpRequest, error: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED)


def _add_generation(app: FastAPI, service: Service) -> None:
    @app.post("/v1/completions")
    async def completions(body: CompletionRequest, http: HttpRequest) -> Response:
        return await _named(body, complete(service, body, http))

    @app.post("/v1/chat/completions")
    async def chat_completions(body: ChatRequest, http: HttpRequest) -> Response:
        return await _named(body, chat(service, body, http))

    @app.post("/v1/responses")
    async def responses(body: ResponsesRequest, http: HttpRequest) -> Response:
        return await _named(body, respond(service, body, http))

    @app.post("/v1/messages")
    async def messages(body: MessagesRequest, http: HttpRequest) -> Response:
        return await _named(body, message(service, body, http))

    @app.post("/v1/messages/count_tokens")
    async def count(body: CountRequest) -> Response:
        return await _named(body, count_tokens(service, body))


def _add_pooling(app: FastAPI, service: Service) -> None:
    @app.post("/v1/embeddings")
    async def embeddings(body: EmbeddingRequest, http: HttpRequest) -> Response:
        return await _named(body, embed(service, body, http))

    @app.post("/pooling")
    async def pooling(body: PoolingRequest, http: HttpRequest) -> Response:
        return await _named(body, pool(service, body, http))

    @app.post("/classify")
    async def classes(body: ClassifyRequest, http: HttpRequest) -> Response:
        return await _named(body, classify(service, body, http))

    @app.post("/score", include_in_schema=False)
    @app.post("/v1/score")
    async def scores(body: ScoreRequest, http: HttpRequest) -> Response:
        return await _named(body, score(service, body, http))

    @app.post("/rerank", include_in_schema=False)
    @app.post("/v2/rerank", include_in_schema=False)
    @app.post("/v1/rerank")
    async def ranking(body: RerankRequest, http: HttpRequest) -> Response:
        return await _named(body, rerank(service, body, http))


async def _named(request: RequestBody, answer: Any) -> Response:
    """The answer, or an error that names the field of the request that it is about."""
    try:
        response: Response = await answer
    except ClientDisconnected:
        raise
    except Exception as error:
        fields = sorted(
            type(request).model_fields, key=lambda one: one not in request.model_fields_set
        )
        raise api_error(error, fields, request.engine_names()) from error
    return response


def _add_tokens(app: FastAPI, service: Service) -> None:
    kinds = TokenizeTextRequest, TokenizeChatRequest

    @app.post("/tokenize", openapi_extra=either_body(*kinds))
    async def of_text(
        body: Annotated[dict[str, Any], Body()],
    ) -> Response:
        kind = TokenizeChatRequest if "messages" in body else TokenizeTextRequest
        request = validated(kind, body)
        return await _named(request, tokenize(service, request))

    @app.post("/detokenize")
    async def of_tokens(body: DetokenizeRequest) -> Response:
        return await _named(body, detokenize(service, body))

    @app.get("/tokenizer_info")
    async def info() -> Response:
        return tokenizer_info(service)


def _add_invocations(app: FastAPI, service: Service) -> None:
    of_head: dict[str | None, Any] = {
        "classify": (ClassifyRequest, classify),
        "token_classify": (PoolingRequest, pool),
        "token_embed": (PoolingRequest, pool),
    }
    pooled = of_head.get(service.llm.head_task, (EmbeddingRequest, embed))
    ways: dict[str, Any] = {  # the first whose field the body has
        "encoding_format": pooled,
        "messages": pooled if service.llm.head_task in of_head else (ChatRequest, chat),
        "prompt": (CompletionRequest, complete),
        "input": pooled,
        "query": (RerankRequest, rerank),
    } | {one: (ScoreRequest, score) for one, _ in SIDES}

    @app.post("/invocations", include_in_schema=False)  # of SageMaker
    async def invocations(body: Annotated[dict[str, Any], Body()], http: HttpRequest) -> Response:
        """Any of these requests, known by its fields."""
        found = next((way for field, way in ways.items() if field in body), None)
        if found is None:
            raise invalid(None, f"the body must have one of {', '.join(ways)}")
        kind, endpoint = found
        request = validated(kind, body)
        return await _named(request, endpoint(service, request, http))


def validated(kind: Any, body: dict[str, Any]) -> Any:
    """A request of a kind that its fields tell. Raises FastAPI's error of validation."""
    from fastapi.exceptions import RequestValidationError
    from pydantic import ValidationError

    try:
        return kind.model_validate(body)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from error


def _add_models(app: FastAPI, service: Service) -> None:
    def card(name: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": service.created,
            "owned_by": "jax-engine",
            "root": service.llm.config.model or service.name,
            "parent": None,
            "max_model_len": service.llm.max_model_len,
            "permission": [],
        }

    def adapter_card(one: LoRARequest) -> dict[str, Any]:
        parent = one.base_model_name or service.name
        return card(one.lora_name) | {"root": one.lora_path, "parent": parent}

    @app.get("/v1/models")
    async def models() -> Response:
        cards = [card(name) for name in service.settings.names]
        cards += [adapter_card(one.lora) for one in service.adapters.all()]
        return json_response({"object": "list", "data": cards})

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> Response:
        adapter = service.adapters.get(name)
        if adapter is not None:
            return json_response(adapter_card(adapter.lora))
        if name not in service.settings.names:
            raise service.no_model(name)
        return json_response(card(name))


def _add_state(app: FastAPI, service: Service) -> None:
    page = MetricsPage(service.llm, service.name, service.refusals)

    @app.head("/health", include_in_schema=False)  # what some load balancers ask
    @app.get("/health")
    @app.get("/ready")
    @app.post("/ping", include_in_schema=False)  # of SageMaker, by either method
    @app.get("/ping")
    async def health() -> Response:
        """200 while the engine can take requests."""
        if service.llm.errored:
            raise engine_dead()
        return json_response({"status": "ok"})

    @app.get("/load")
    async def load() -> Response:
        """How many prompts wait or run."""
        return json_response({"server_load": service.llm.num_unfinished_requests})

    @app.get("/version")
    async def version() -> Response:
        return json_response({"version": _version()})

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(await page.text(), headers={"Content-Type": CONTENT_TYPE})


class LoadRequest(Fields):
    """An adapter that is to be offered."""

    lora_name: str = ""
    lora_path: str = Field("", description="a folder or a GGUF file of the server's machine")
    load_inplace: bool = False


class UnloadRequest(Fields):
    """An adapter that is not to be offered any more."""

    lora_name: str = ""
    lora_int_id: int | None = None


def add_lora_endpoints(app: FastAPI, service: Service) -> None:
    """Adds them. Who may call them can have any file of this machine read as an adapter."""

    @app.post("/v1/load_lora_adapter")
    async def load(body: LoadRequest) -> Response:
        name, path = body.lora_name, body.lora_path
        if not name or not path:
            raise _invalid_name("Both 'lora_name' and 'lora_path' must be provided.")
        try:
            new = await service.adapters.load(LoRAModule(name, path), inplace=body.load_inplace)
        except Exception as error:
            raise api_error(error, sorted(LoadRequest.model_fields)) from error
        if not new:
            raise _invalid_name(
                f"The lora adapter '{name}' has already been loaded. If you want to load the "
                "adapter in place, set 'load_inplace' to True."
            )
        return PlainTextResponse(f"Success: LoRA adapter '{name}' added successfully.")

    @app.post("/v1/unload_lora_adapter")
    async def unload(body: UnloadRequest) -> Response:
        name = body.lora_name
        if not name:
            raise _invalid_name("'lora_name' needs to be provided to unload a LoRA adapter.")
        if not await service.adapters.unload(name):
            message = f"The lora adapter '{name}' cannot be found."
            raise ApiError(404, message, param="lora_name", code="model_not_found")
        return PlainTextResponse(f"Success: LoRA adapter '{name}' removed successfully.")


def _invalid_name(message: str) -> ApiError:
    return ApiError(400, message, param="lora_name")


_ERROR = {
    "type": "object",
    "properties": {"message": {"type": "string"}, "type": {"type": "string"}},
    "required": ["message", "type"],
}
_BODY = {"type": "object", "properties": {"error": _ERROR}, "required": ["error"]}
# What the errors of OpenAI's and of Anthropic's shape have in common.
ERROR_DOCUMENT: dict[str, Any] = {
    "description": "An error",
    "content": {"application/json": {"schema": _BODY}},
}


def either_body(*kinds: type[BaseModel]) -> dict[str, Any]:
    """For `openapi_extra`: the body is one of several kinds."""
    schema = {"anyOf": [kind.model_json_schema() for kind in kinds]}
    return {"requestBody": {"content": {"application/json": {"schema": schema}}}}
