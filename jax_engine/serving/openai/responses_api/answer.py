"""The answer, and the items in it."""

import time
import uuid
from dataclasses import dataclass, field
from typing import Any

import msgspec

from jax_engine.serving.openai.blocks import Block, Kind
from jax_engine.serving.openai.responses_api.request import ResponsesRequest
from jax_engine.serving.openai.responses_api.tools import OFFERED_IN_VAIN, namespaces

_PREFIX: dict[Kind, str] = {"reasoning": "rs", "text": "msg", "call": "fc"}


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
        "tools": [_tool(one) for one in request.tools or () if one["type"] not in OFFERED_IN_VAIN],
        "top_logprobs": request.top_logprobs or 0,
        "top_p": request.top_p,
        "truncation": request.truncation,
        "user": request.user,
    }


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """OpenAI's clients want these two fields in any case."""
    return {"parameters": None, "strict": None} | tool if tool["type"] == "function" else tool
