"""A request as a `ChatRequest`."""

from typing import Any

from jax_engine.serving.anthropic.content import add_messages, add_system
from jax_engine.serving.anthropic.request import CountRequest, MessagesRequest
from jax_engine.serving.anthropic.tools import chat_tools
from jax_engine.serving.openai.conversation import Conversation
from jax_engine.serving.openai.requests import ChatRequest


def chat_request(request: CountRequest) -> ChatRequest:
    """The chat that a request asks for.

    Raises:
        ApiError, RequestValidationError: it is not acceptable.
    """
    chat = Conversation()
    if request.system is not None:
        add_system(chat, request.system)
    goes_on = add_messages(chat, request.messages)
    fields: dict[str, Any] = chat_tools(request) | {
        "model": request.model,
        "messages": chat.done(),
        "continue_final_message": goes_on,
        "add_generation_prompt": not goes_on,
    }
    if request.thinking is not None:
        thinks = request.thinking.type != "disabled"
        fields["chat_template_kwargs"] = {"enable_thinking": thinks}
    if request.output_config is not None:
        fields["reasoning_effort"] = request.output_config.effort
        form = request.output_config.format
        if form is not None:
            schema = {"name": "output", "schema": form.schema_}
            fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    if isinstance(request, MessagesRequest):
        request.check()
        fields |= {
            "max_completion_tokens": request.max_tokens,
            "stop": request.stop_sequences,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "top_k": request.top_k,
            "stream": request.stream,
        }
    names = [f"tools.{i}.input_schema" for i, _ in enumerate(request.tools or ())]
    return ChatRequest.model_validate(fields).with_schemas(names)
