"""The endpoints of Anthropic's API: the events of a stream, and the answer that they add up to."""

import json
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from msgspec import Raw
from pydantic_core import from_json
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from jax_engine.outputs import CompletionOutput
from jax_engine.serving.api.anthropic.messages_request import (
    CountRequest,
    MessagesRequest,
    chat_request,
)
from jax_engine.serving.api.api_errors import ApiError, aborted, anthropic_error
from jax_engine.serving.api.chat_generation import ChatGeneration, count_reasoning_tokens
from jax_engine.serving.api.content_blocks import Block, BlockEvent, Blocks
from jax_engine.serving.api.endpoint_responses import json_response
from jax_engine.serving.api.request_prompts import chat_prompt
from jax_engine.serving.api.service import Service, answer_id
from jax_engine.serving.api.streaming import for_client, named_event_stream, with_errors


async def message(service: Service, request: MessagesRequest, http: HttpRequest) -> Response:
    """Answers a request, as one object or as a stream."""
    call = await for_client(http, ChatGeneration.of(service, chat_request(request)))
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


type Event = dict[str, Any]
_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


@dataclass
class Writer:
    """Writes what a call says as content blocks."""

    call: ChatGeneration
    request: MessagesRequest
    id: str
    blocks: Blocks = field(default_factory=Blocks)
    _last: CompletionOutput | None = None

    async def whole(self) -> dict[str, Any]:
        """The answer at once."""
        async for _ in self._events():
            pass
        content = [self._block(one, one.text) for one in self.blocks.all]
        usage = self._usage() | await self._thinking_tokens()
        return self._message() | {"content": content, "usage": usage} | self._stop()

    def events(self) -> AsyncGenerator[Event]:
        """The answer as it comes. An error before the first event is raised, a later one said."""
        return with_errors(self._events(), _error_events)

    async def _events(self) -> AsyncGenerator[Event]:
        begun = False
        async for output in self.call.outputs():
            if not begun:
                begun = True
                usage = self._usage() | {"output_tokens": 0}
                yield {"type": "message_start", "message": self._message() | {"usage": usage}}
                yield {"type": "ping"}
            for one in output.outputs:
                self._last = one
                for step in self.blocks.take(self.call.turn_delta(one)):
                    for event in self._of(step):
                        yield event
        for step in (*self.blocks.finish(), *self.blocks.end()):
            for event in self._of(step):
                yield event
        usage = self._usage() | await self._thinking_tokens()
        yield {"type": "message_delta", "delta": self._stop(), "usage": usage}
        yield {"type": "message_stop"}

    def _message(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.call.service.name_of(self.call.request),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }

    def _of(self, step: BlockEvent) -> list[Event]:
        where = {"index": step.block.index}
        if step.what == "begin":
            block = self._block(step.block, "")
            return [{"type": "content_block_start", "content_block": block} | where]
        if step.what == "end":
            return [{"type": "content_block_stop"} | where]
        delta = self._delta(step)
        return [] if delta is None else [{"type": "content_block_delta", "delta": delta} | where]

    def _delta(self, step: BlockEvent) -> dict[str, Any] | None:
        match step.block.kind:
            case "text":
                return {"type": "text_delta", "text": step.text}
            case "call":
                return {"type": "input_json_delta", "partial_json": step.text}
            case "reasoning":
                shown = {"type": "thinking_delta", "thinking": step.text}
                return shown if self._shows_thinking() else None

    def _block(self, block: Block, text: str) -> dict[str, Any]:
        match block.kind:
            case "text":
                return {"type": "text", "text": text}
            case "call":
                call = {"id": block.id, "name": block.name, "input": _object(text)}
                return {"type": "tool_use"} | call
            case "reasoning":
                thinking = text if self._shows_thinking() else ""
                return {"type": "thinking", "thinking": thinking, "signature": ""}

    def _shows_thinking(self) -> bool:
        thinking = self.request.thinking
        return thinking is None or thinking.display != "omitted"

    def _stop(self) -> dict[str, Any]:
        assert self._last is not None
        reason = self.call.finish_reason(self._last)
        if reason == "abort":
            raise aborted(self._last.stop_reason)
        found = self._last.stop_reason
        if reason == "stop" and isinstance(found, str):
            return {"stop_reason": "stop_sequence", "stop_sequence": found}
        return {"stop_reason": _REASONS.get(reason or "", "end_turn"), "stop_sequence": None}

    def _usage(self) -> dict[str, Any]:
        used, cached = self.call.counts.usage(), self.call.counts.cached
        return {
            "input_tokens": used.prompt_tokens - cached,
            "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": 0,
            "output_tokens": used.completion_tokens,
        }

    async def _thinking_tokens(self) -> dict[str, Any]:
        thought = await count_reasoning_tokens(self.call, self.blocks.thoughts)
        return {"output_tokens_details": {"thinking_tokens": thought}}


def _object(arguments: str) -> dict[str, Any] | Raw:
    """The arguments of a call. If `max_tokens` has cut them: those that are complete, as
    Anthropic's client reads a stream's."""
    with suppress(ValueError):
        json.loads(arguments)
        return Raw(arguments.encode())  # as it is: half a surrogate pair could not be written
    try:
        found = from_json(arguments, allow_partial=True)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _error_events(error: ApiError) -> list[Event]:
    return [anthropic_error(error.status, error.body()["error"]["message"])]
