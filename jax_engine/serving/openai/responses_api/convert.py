"""A request as a `ChatRequest`."""

from typing import Any

from jax_engine.serving.openai.conversation import Conversation
from jax_engine.serving.openai.errors import invalid
from jax_engine.serving.openai.requests import ChatRequest
from jax_engine.serving.openai.responses_api.items import add_items
from jax_engine.serving.openai.responses_api.request import ResponsesRequest
from jax_engine.serving.openai.responses_api.tools import chat_tools
from jax_engine.serving.openai.sampling_fields import SamplingFields


def chat_request(request: ResponsesRequest) -> ChatRequest:
    """The chat that a request asks for.

    Raises:
        ApiError, RequestValidationError: it is not acceptable.
    """
    request.check()
    chat = Conversation()
    if request.instructions is not None:
        chat.say("system", [request.instructions])
    add_items(chat, request.input)
    fields = {name: getattr(request, name) for name in SamplingFields.model_fields}
    tools, schemas = chat_tools(request)
    fields |= tools | _logprobs(request)
    fields |= {
        "messages": chat.done(),
        "max_completion_tokens": request.max_output_tokens,
        "response_format": _format(request),
        "reasoning_effort": None if request.reasoning is None else request.reasoning.effort,
        "truncate_prompt_tokens": -1 if request.truncation == "auto" else None,
        "chat_template_kwargs": request.chat_template_kwargs,
    }
    return ChatRequest.model_validate(fields).with_schemas(schemas)


def _logprobs(request: ResponsesRequest) -> dict[str, Any]:
    """A request with log-probabilities runs as a stream: so each token is known to be of the text,
    of the reasoning or of a call."""
    if not request.wants_logprobs:
        return {}
    return {"logprobs": True, "top_logprobs": request.top_logprobs or 0, "stream": True}


def _format(request: ResponsesRequest) -> dict[str, Any] | None:
    form = None if request.text is None else request.text.format
    if form is None or form.type == "text":
        return None
    if form.type == "json_object":
        return {"type": "json_object"}
    if form.schema_ is None:
        raise invalid("text.format.schema", "text.format.schema is missing")
    if request.structured_outputs is not None:
        message = "text.format and structured_outputs must not be given together"
        raise invalid("structured_outputs", message)
    schema = form.model_dump(by_alias=True, exclude={"type"}, exclude_none=True)
    return {"type": "json_schema", "json_schema": schema}
