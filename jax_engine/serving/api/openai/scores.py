"""`/score` and `/rerank`: how well pairs of texts match, as `LLM.score` computes it."""

import time
from collections.abc import Sequence

from msgspec import Struct
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from jax_engine.engine.pooling.ranking import scored_together, scores_of
from jax_engine.engine.pooling.scoring import compared, pair_messages, whole_pair_scored
from jax_engine.errors import InvalidRequestError
from jax_engine.outputs import PoolingRequestOutput
from jax_engine.pooling_params import PoolingTask
from jax_engine.serving.api.api_errors import invalid
from jax_engine.serving.api.endpoint_requests import PairRequest, RerankRequest, ScoreRequest
from jax_engine.serving.api.endpoint_responses import Usage, json_response
from jax_engine.serving.api.openai.embeddings import (
    PooledResponse,
    Prompt,
    adds_special_tokens,
    checked_keep,
    cut_and_salted,
    gathered,
    outputs_of,
    params_of,
    prompt_together,
    prompts_of,
    usage_of,
)
from jax_engine.serving.api.request_prompts import MAX_PROMPTS
from jax_engine.serving.api.service import Service, answer_id
from jax_engine.serving.api.streaming import for_client


class Score(Struct):
    """How well a pair matches."""

    index: int
    score: float
    object: str = "score"


class Document(Struct):
    """A document of a rerank."""

    text: str


class Ranked(Struct):
    """A document, its place in the request, and how well it answers the query."""

    index: int
    document: Document
    relevance_score: float


class Ranking(Struct):
    """The answer of a rerank, the best document first."""

    id: str
    model: str
    usage: Usage
    results: list[Ranked]


async def score(service: Service, request: ScoreRequest, http: HttpRequest) -> Response:
    """Scores of pairs: each of `text_1` with its neighbour in `text_2`, or one with all."""
    service.check_model(request)
    first, second = request.sides
    left, right = (_texts(name, getattr(request, name)) for name in (first, second))
    if len(left) not in (1, len(right)):
        raise invalid(
            first,
            f"{first} must hold 1 text or as many as {second} ({len(right)}), got {len(left)}",
        )
    name = answer_id("score", request.request_id, http)
    scores, usage = await _scores(service, request, left, right, http)
    items = [Score(i, one) for i, one in enumerate(scores)]
    answer = PooledResponse(name, "list", int(time.time()), service.name_of(request), items, usage)
    return json_response(answer)


async def rerank(service: Service, request: RerankRequest, http: HttpRequest) -> Response:
    """Documents, sorted by how well they answer a query."""
    service.check_model(request)
    if request.top_n < 0:
        raise invalid("top_n", f"top_n must be at least 0, got {request.top_n}")
    texts = _texts("documents", request.documents)
    name = answer_id("rerank", request.request_id, http)
    scores, usage = await _scores(service, request, [request.query], texts, http)
    order = sorted(range(len(texts)), key=lambda i: -scores[i])[: request.top_n or None]
    ranked = [Ranked(i, Document(texts[i]), scores[i]) for i in order]
    return json_response(Ranking(name, service.name_of(request), usage, ranked))


def _texts(name: str, given: str | list[str]) -> list[str]:
    texts = [given] if isinstance(given, str) else given
    if not 1 <= len(texts) <= MAX_PROMPTS:
        raise invalid(name, f"{name} must hold 1 to {MAX_PROMPTS} texts, got {len(texts)}")
    return texts


async def _scores(
    service: Service, request: PairRequest, left: list[str], right: list[str], http: HttpRequest
) -> tuple[list[float], Usage]:
    """The score of each pair; a single left text is that of every pair."""
    left = await _cut(service, request, "max_tokens_per_query", left, http)
    right = await _cut(service, request, "max_tokens_per_doc", right, http)
    if service.llm.ranks:
        return await _together(service, request, left, right, http)
    if service.llm.head_task != "classify":
        return await _by_embeddings(service, request, left, right, http)
    labels = service.llm.labels
    if len(labels) != 1:
        raise InvalidRequestError(
            f"score needs a model with a head for 1 score, got {len(labels)}: use /classify"
        )
    pairs = list(zip(left * len(right) if len(left) == 1 else left, right, strict=True))
    service.check_queue(len(pairs))
    prompts = [_joined(service, request, *pair) for pair in pairs]
    made = await for_client(http, gathered(prompts))
    params = params_of(service, "classify", use_activation=request.is_activated)
    outputs = await outputs_of(service, request, made, params, http)
    return [whole_pair_scored(one).outputs.score for one in outputs], usage_of(outputs)


async def _cut(
    service: Service, request: PairRequest, name: str, texts: list[str], http: HttpRequest
) -> list[str]:
    """Texts of as many tokens as the field called `name` allows. Raises ApiError."""
    count, limit = getattr(request, name), service.llm.max_model_len
    if count is not None and not 0 <= count < limit:
        raise invalid(name, f"{name} must be from 0 to {limit - 1}, got {count}")
    if not count:
        return texts
    return await for_client(http, gathered([service.encoder.cut(one, count) for one in texts]))


async def _joined(service: Service, request: PairRequest, left: str, right: str) -> Prompt:
    """A pair as the prompt of a reranker: by the server's template, or one after the other."""
    keep, encoder = checked_keep(service, request), service.encoder
    template = service.settings.chat_template
    special = adds_special_tokens(request)
    options = {"add_special_tokens": special, "any_length": keep is not None}
    if template is None:
        ids, types = await encoder.pair_ids(left, right, **options)
        prompt = {"prompt_token_ids": ids}
        if service.llm.token_types > 1:
            prompt["token_type_ids"] = types
    else:
        text = await encoder.beside(pair_messages, service.tokenizer, left, right, template)
        prompt = {"prompt_token_ids": await encoder.ids(text, room=0, **options)}
    around = service.llm.kept_around if special else (0, 0)
    return cut_and_salted(request, prompt, keep, around)


async def _together(
    service: Service, request: PairRequest, left: list[str], right: list[str], http: HttpRequest
) -> tuple[list[float], Usage]:
    """Compares the vectors of one prompt: of a query and its documents."""
    asked = scored_together(left, right)
    params = params_of(service, "token_embed", use_activation=request.is_activated)
    service.check_queue(len(asked))
    made = [prompt_together(service, request, one, http) for one in asked]
    outputs = await outputs_of(service, request, await gathered(made), params, http)
    return [one.outputs.score for one in scores_of(outputs, asked)], usage_of(outputs)


async def _by_embeddings(
    service: Service, request: PairRequest, left: list[str], right: list[str], http: HttpRequest
) -> tuple[list[float], Usage]:
    """Compares embeddings; each text is computed once."""
    config = service.llm.config.pooler_config
    late = config is not None and config.task == "token_embed"
    task: PoolingTask = "token_embed" if late else "embed"
    params = params_of(service, task, use_activation=request.is_activated)
    service.check_queue(len(left) + len(right))
    prompts = await prompts_of(service, request, [*left, *right], http)
    outputs = await outputs_of(service, request, prompts, params, http)
    firsts: Sequence[PoolingRequestOutput] = outputs[: len(left)]
    firsts = list(firsts) * len(right) if len(left) == 1 else firsts
    pairs = zip(firsts, outputs[len(left) :], strict=True)
    return [compared(one, other).outputs.score for one, other in pairs], usage_of(outputs)
