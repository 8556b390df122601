"""The endpoint of OpenAI's Responses API."""

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from jax_engine.serving.openai.chat_call import ChatCall
from jax_engine.serving.openai.events import named_event_stream
from jax_engine.serving.openai.responses import json_response
from jax_engine.serving.openai.responses_api.answer import Answer
from jax_engine.serving.openai.responses_api.convert import chat_request
from jax_engine.serving.openai.responses_api.events import Writer
from jax_engine.serving.openai.responses_api.request import ResponsesRequest
from jax_engine.serving.openai.running import for_client
from jax_engine.serving.openai.service import Service, answer_id


async def respond(service: Service, request: ResponsesRequest, http: HttpRequest) -> Response:
    """Answers a request, as one object or as a stream."""
    call = await for_client(http, ChatCall.of(service, chat_request(request)))
    name = answer_id("resp", request.request_id, http, "_")
    writer = Writer(call, Answer(request, name, service.name_of(call.request)))
    if request.stream:
        return await named_event_stream(http, writer.events())
    return json_response(await for_client(http, writer.whole()))
