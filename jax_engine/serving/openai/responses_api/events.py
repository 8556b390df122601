"""The events of a stream, and the answer that they add up to."""

from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from jax_engine.outputs import CompletionOutput
from jax_engine.serving.openai.blocks import Block, Blocks, Step
from jax_engine.serving.openai.chat_call import ChatCall
from jax_engine.serving.openai.errors import ApiError, aborted
from jax_engine.serving.openai.events import with_errors
from jax_engine.serving.openai.responses_api.answer import Answer
from jax_engine.serving.openai.thought import thought_tokens

type Event = dict[str, Any]
_TEXT = {"text": "response.output_text", "reasoning": "response.reasoning_text"}
_ARGUMENTS = "response.function_call_arguments"


@dataclass
class Writer:
    """Writes what a call says as items."""

    call: ChatCall
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
                said = self.call.said(one)
                for step in self.blocks.take(said, self._logprobs(one)):
                    for event in self._of(step):
                        yield event
                reason, why = self.call.finish_reason(one), one.stop_reason
        if reason == "abort":
            raise aborted(why)
        for step in (*self.blocks.finish(), *self._last_steps(reason)):
            for event in self._of(step):
                yield event
        yield await self._end(reason)

    def _last_steps(self, reason: str | None) -> Iterator[Step]:
        if not self.blocks.all:  # a turn without a word is an empty message
            yield from self.blocks.begin("text")
        if reason != "length":  # else the open item stays incomplete
            yield from self.blocks.end()
        elif not self.blocks.all[-1].ended:
            yield Step("end", self.blocks.all[-1])

    async def _end(self, reason: str | None) -> Event:
        status = "incomplete" if reason == "length" else "completed"
        whole = self.answer.whole(status, self.blocks.all, usage=await self._usage())
        return self._event(f"response.{status}", response=whole)

    def _failure(self, error: ApiError) -> list[Event]:
        said = error.body()["error"]
        fields = {name: said[name] for name in ("code", "message", "param")}
        problem = {"code": "server_error", "message": said["message"]}
        whole = self.answer.whole("failed", self.blocks.all, error=problem)
        return [
            self._event("error", **fields),
            self._event("response.failed", response=whole),
        ]

    def _of(self, step: Step) -> list[Event]:
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
        thought = await thought_tokens(self.call, self.blocks.thoughts)
        return {
            "input_tokens": used.prompt_tokens,
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
            "output_tokens": used.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": thought},
            "total_tokens": used.total_tokens,
        }
