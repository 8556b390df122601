"""The endpoint `/v1/responses`: the events of a stream, and the answer that they add up to."""

import time
import uuid
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import UNSET
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from jax_engine.outputs import CompletionOutput, RequestMetrics
from jax_engine.serving.api.api_errors import ApiError, aborted
from jax_engine.serving.api.chat_generation import ChatGeneration, count_reasoning_tokens
from jax_engine.serving.api.content_blocks import Block, BlockEvent, BlockKind, Blocks
from jax_engine.serving.api.endpoint_responses import json_response
from jax_engine.serving.api.openai.responses_request import (
    IGNORED_TOOLS,
    ResponsesRequest,
    chat_request,
    namespaces,
)
from jax_engine.serving.api.service import Service, answer_id
from jax_engine.serving.api.streaming import for_client, named_event_stream, with_errors


async def respond(service: Service, request: ResponsesRequest, http: HttpRequest) -> Response:
    """Answers a request, as one object or as a stream."""
    call = await for_client(http, ChatGeneration.of(service, chat_request(request)))
    name = answer_id("resp", request.request_id, http, "_")
    writer = Writer(call, Answer(request, name, service.name_of(call.request)))
    if request.stream:
        return await named_event_stream(http, writer.events())
    return json_response(await for_client(http, writer.whole()))


_PREFIX: dict[BlockKind, str] = {"reasoning": "rs", "text": "msg", "call": "fc"}


@dataclass
class Answer:
    """What is said about a request, at each of its stages.

    Attributes:
        model: the served name.
    """

    request: ResponsesRequest
    id: str
    model: str
    created: int = field(default_factory=lambda: int(time.time()))
    _ids: dict[int, str] = field(default_factory=dict)
    _namespaces: dict[str, dict[str, str]] = field(init=False)

    def __post_init__(self) -> None:
        self._namespaces = namespaces(self.request)

    def whole(
        self,
        status: str,
        blocks: list[Block],
        *,
        usage: dict[str, Any] | None = None,
        error: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The object `response`. All that the request said of itself is repeated in it."""
        done = status in ("completed", "incomplete", "failed")
        reason = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "completed_at": int(time.time()) if status == "completed" else None,
            "status": status,
            "error": error,
            "incomplete_details": reason,
            "model": self.model,
            "output": [self.item(one, "incomplete" if done else "in_progress") for one in blocks],
            "usage": usage,
        } | _repeated(self.request)

    def item_id(self, block: Block) -> str:
        """A block's id: the same from its first event to the answer."""
        return self._ids.setdefault(block.index, f"{_PREFIX[block.kind]}_{uuid.uuid4().hex}")

    def item(self, block: Block, unless_ended: str) -> dict[str, Any]:
        """A block as an item of the output.

        Args:
            unless_ended: the status of a block that is still open.
        """
        status = "completed" if block.ended else unless_ended
        item: dict[str, Any] = {"id": self.item_id(block), "status": status}
        if block.kind == "call":
            call = {"type": "function_call", "call_id": block.id, "arguments": block.text}
            return item | call | self._namespaces.get(block.name, {"name": block.name})
        begun = bool(block.text) or block.ended
        content = [self.part(block)] if begun else []
        if block.kind == "reasoning":
            return item | {"type": "reasoning", "summary": [], "content": content}
        return item | {"type": "message", "role": "assistant", "content": content}

    def part(self, block: Block) -> dict[str, Any]:
        """The one part of a block's content."""
        if block.kind == "reasoning":
            return {"type": "reasoning_text", "text": block.text}
        logprobs = msgspec.to_builtins(block.logprobs)
        return {"type": "output_text", "text": block.text, "annotations": [], "logprobs": logprobs}


def _repeated(request: ResponsesRequest) -> dict[str, Any]:
    form: dict[str, Any] = {"type": "text"}
    if request.text is not None and request.text.format is not None:
        form = request.text.format.model_dump(by_alias=True, exclude_none=True)
        if form["type"] != "json_schema":
            form = {"type": form["type"]}
    effort = None if request.reasoning is None else request.reasoning.effort
    return {
        "background": False,
        "store": False,
        "previous_response_id": None,
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "metadata": request.metadata or {},
        "parallel_tool_calls": request.parallel_tool_calls,
        "prompt_cache_key": request.prompt_cache_key,
        "reasoning": {"effort": effort, "summary": None},
        "safety_identifier": request.safety_identifier,
        "service_tier": "default",
        "temperature": request.temperature,
        "text": {"format": form},
        "tool_choice": "auto" if request.tool_choice is None else request.tool_choice,
        "tools": [_tool(one) for one in request.tools or () if one["type"] not in IGNORED_TOOLS],
        "top_logprobs": request.top_logprobs or 0,
        "top_p": request.top_p,
        "truncation": request.truncation,
        "user": request.user,
    }


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """OpenAI's clients want these two fields in any case."""
    return {"parameters": None, "strict": None} | tool if tool["type"] == "function" else tool


type Event = dict[str, Any]
_TEXT = {"text": "response.output_text", "reasoning": "response.reasoning_text"}
_ARGUMENTS = "response.function_call_arguments"


@dataclass
class Writer:
    """Writes what a call says as items."""

    call: ChatGeneration
    answer: Answer
    blocks: Blocks = field(default_factory=Blocks)
    _number: int = 0

    async def whole(self) -> dict[str, Any]:
        """The answer at once."""
        async for event in self._events():
            last = event
        whole: dict[str, Any] = last["response"]
        return whole

    def events(self) -> AsyncGenerator[Event]:
        """The answer as it comes. An error before the first event is raised, a later one said."""
        return with_errors(self._events(), self._failure)

    async def _events(self) -> AsyncGenerator[Event]:
        begun, reason, why = False, None, None
        async for output in self.call.outputs():
            if not begun:
                begun = True
                for name in ("created", "in_progress"):
                    whole = self.answer.whole("in_progress", [])
                    yield self._event(f"response.{name}", response=whole)
            for one in output.outputs:
                turn = self.call.turn_delta(one)
                for step in self.blocks.take(turn, self._logprobs(one)):
                    for event in self._of(step):
                        yield event
                reason, why = self.call.finish_reason(one), one.stop_reason
        if reason == "abort":
            raise aborted(why)
        for step in (*self.blocks.finish(), *self._last_steps(reason)):
            for event in self._of(step):
                yield event
        yield await self._end(reason, output.metrics)

    def _last_steps(self, reason: str | None) -> Iterator[BlockEvent]:
        if not self.blocks.all:  # a turn without a word is an empty message
            yield from self.blocks.begin("text")
        if reason != "length":  # else the open item stays incomplete
            yield from self.blocks.end()
        elif not self.blocks.all[-1].ended:
            yield BlockEvent("end", self.blocks.all[-1])

    async def _end(self, reason: str | None, metrics: RequestMetrics) -> Event:
        status = "incomplete" if reason == "length" else "completed"
        whole = self.answer.whole(status, self.blocks.all, usage=await self._usage())
        num_tokens = self.call.counts.usage().completion_tokens
        timings = self.call.service.timings(metrics, num_tokens, 1)
        if timings is not UNSET:
            whole["metrics"] = msgspec.to_builtins(timings)
        return self._event(f"response.{status}", response=whole)

    def _failure(self, error: ApiError) -> list[Event]:
        body = error.body()["error"]
        fields = {name: body[name] for name in ("code", "message", "param")}
        problem = {"code": "server_error", "message": body["message"]}
        whole = self.answer.whole("failed", self.blocks.all, error=problem)
        return [
            self._event("error", **fields),
            self._event("response.failed", response=whole),
        ]

    def _of(self, step: BlockEvent) -> list[Event]:
        block = step.block
        where: dict[str, Any] = {"item_id": self.answer.item_id(block), "output_index": block.index}
        if step.what == "grow":
            if block.kind == "call":
                return [self._event(f"{_ARGUMENTS}.delta", **where, delta=step.text)]
            fields: dict[str, Any] = {"content_index": 0, "delta": step.text}
            if block.kind == "text":
                fields["logprobs"] = msgspec.to_builtins(step.logprobs)
            return [self._event(f"{_TEXT[block.kind]}.delta", **where, **fields)]
        item: dict[str, Any] = {"output_index": block.index}
        if step.what == "begin":
            item["item"] = self.answer.item(block, "in_progress")
            return [
                self._event("response.output_item.added", **item),
                *self._part("added", block, where),
            ]
        item["item"] = self.answer.item(block, "incomplete")
        return [
            self._done(block, where),
            *self._part("done", block, where),
            self._event("response.output_item.done", **item),
        ]

    def _part(self, what: str, block: Block, where: dict[str, Any]) -> list[Event]:
        if block.kind == "call":
            return []
        fields = {"content_index": 0, "part": self.answer.part(block)}
        return [self._event(f"response.content_part.{what}", **where, **fields)]

    def _done(self, block: Block, where: dict[str, Any]) -> Event:
        if block.kind == "call":
            call = {"name": block.name, "arguments": block.text}
            return self._event(f"{_ARGUMENTS}.done", **where, **call)
        fields: dict[str, Any] = {"content_index": 0, "text": block.text}
        if block.kind == "text":
            fields["logprobs"] = msgspec.to_builtins(block.logprobs)
        return self._event(f"{_TEXT[block.kind]}.done", **where, **fields)

    def _event(self, kind: str, **fields: Any) -> Event:
        self._number += 1
        return {"type": kind, "sequence_number": self._number - 1} | fields

    def _logprobs(self, one: CompletionOutput) -> list[Any]:
        found = self.call.logprobs(one)
        return [] if found is None else found.content

    async def _usage(self) -> dict[str, Any]:
        used = self.call.counts.usage()
        cached = self.call.counts.cached
        thought = await count_reasoning_tokens(self.call, self.blocks.thoughts)
        return {
            "input_tokens": used.prompt_tokens,
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
            "output_tokens": used.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": thought},
            "total_tokens": used.total_tokens,
        }
