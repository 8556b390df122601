"""The endpoints of Anthropic's API."""

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from jax_engine.serving.anthropic.convert import chat_request
from jax_engine.serving.anthropic.events import Writer
from jax_engine.serving.anthropic.request import CountRequest, MessagesRequest
from jax_engine.serving.openai.chat_call import ChatCall
from jax_engine.serving.openai.events import named_event_stream
from jax_engine.serving.openai.prompts import chat_prompt
from jax_engine.serving.openai.responses import json_response
from jax_engine.serving.openai.running import for_client
from jax_engine.serving.openai.service import Service, answer_id


async def message(service: Service, request: MessagesRequest, http: HttpRequest) -> Response:
    """Answers a request, as one object or as a stream."""
    call = await for_client(http, ChatCall.of(service, chat_request(request)))
    writer = Writer(call, request, answer_id("msg", None, http, "_"))
    if request.stream:
        return await named_event_stream(http, writer.events())
    return json_response(await for_client(http, writer.whole()))


async def count_tokens(service: Service, request: CountRequest) -> Response:
    """How many tokens the prompt of a request has."""
    chat = chat_request(request)
    service.check_model(chat)
    prompt = await chat_prompt(service, chat, chat, any_length=True)
    return json_response({"input_tokens": len(prompt["prompt_token_ids"])})
