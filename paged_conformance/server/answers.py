"""Answers in one form, whole or joined from a stream's events."""

import json
from dataclasses import dataclass, field
from typing import Any

from paged_conformance.server.wire import DONE, Reply


@dataclass
class Choice:
    """One choice of an answer.

    Attributes:
        text: A completion's text, or a chat's content.
        calls: What tools are called: `name` and `arguments` as text.
        tokens: Each token's text; empty without log-probabilities.
        logprobs: Each token's; None where the server gives none, as for a prompt's first.
        tops: Each token's most likely ones, by their text.
        offsets: Where each token begins in the text; completions alone.
        token_ids: As `return_token_ids` asks for; None without.
        pieces: The text's pieces as they came.
    """

    text: str = ""
    reasoning: str = ""
    finish: str | None = None
    stop: Any = None
    role: str | None = None
    calls: list[dict[str, Any]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    logprobs: list[float | None] = field(default_factory=list)
    tops: list[dict[str, float]] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    token_ids: list[int] | None = None
    pieces: list[str] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        """What a stream and a whole answer must have in common, but for numbers' last digits."""
        names = ("text", "reasoning", "finish", "stop", "calls", "tokens", "offsets", "token_ids")
        found = {name: getattr(self, name) for name in names}
        found["calls"] = [{key: one[key] for key in ("name", "arguments")} for one in self.calls]
        return found


@dataclass
class Answer:
    """All choices by index, and the usage if it was told."""

    choices: dict[int, Choice]
    usage: dict[str, Any] | None
    raw: list[Any]  # the body, or the events

    @property
    def first(self) -> Choice:
        return self.choices[0]


def of_whole(api: str, reply: Reply) -> Answer:
    """Reads a body.

    Raises:
        ValueError, KeyError, TypeError: It is none of this endpoint.
    """
    body = reply.json()
    if not isinstance(body, dict):
        raise ValueError("the body is no JSON object")
    choices: dict[int, Choice] = {}
    for raw in body["choices"]:
        choice = choices.setdefault(raw["index"], Choice())
        _add(choice, raw, raw if api == "completions" else raw["message"])
    return Answer(choices, body.get("usage"), [body])


def of_stream(api: str, reply: Reply) -> Answer:
    """Joins a stream's events.

    Raises:
        ValueError, KeyError, TypeError: They are none of this endpoint.
    """
    choices: dict[int, Choice] = {}
    usage, raws = None, []
    for event in reply.events:
        if event == DONE:
            break
        body = json.loads(event)
        raws.append(body)
        if "error" in body:
            raise ValueError(f"an error within the stream: {event[:300]}")
        usage = body.get("usage") or usage
        for raw in body["choices"]:
            choice = choices.setdefault(raw["index"], Choice())
            _add(choice, raw, raw if api == "completions" else raw["delta"])
    return Answer(choices, usage, raws)


def _add(choice: Choice, raw: dict[str, Any], said: dict[str, Any]) -> None:
    """Adds what a choice, or a piece of one, says."""
    piece = said.get("text") if "text" in said else said.get("content")
    choice.text += piece or ""
    if piece:
        choice.pieces.append(piece)
    choice.reasoning += said.get("reasoning_content") or said.get("reasoning") or ""
    choice.role = said.get("role") or choice.role
    choice.finish = raw.get("finish_reason") or choice.finish
    if raw.get("stop_reason") is not None:
        choice.stop = raw["stop_reason"]
    if raw.get("token_ids") is not None:
        choice.token_ids = (choice.token_ids or []) + raw["token_ids"]
    for call in said.get("tool_calls") or ():
        _add_call(choice, call)
    if raw.get("logprobs") is not None:
        _add_logprobs(choice, raw["logprobs"])


def _add_call(choice: Choice, call: dict[str, Any]) -> None:
    place = call.get("index", len(choice.calls))
    while len(choice.calls) <= place:
        choice.calls.append({"id": None, "name": "", "arguments": ""})
    held, function = choice.calls[place], call.get("function") or {}
    held["id"] = call.get("id") or held["id"]
    held["name"] += function.get("name") or ""
    held["arguments"] += function.get("arguments") or ""


def _add_logprobs(choice: Choice, raw: dict[str, Any]) -> None:
    if "content" in raw:  # a chat's
        for token in raw["content"] or ():
            choice.tokens.append(token["token"])
            choice.logprobs.append(token["logprob"])
            tops = token.get("top_logprobs") or ()
            choice.tops.append({one["token"]: one["logprob"] for one in tops})
        return
    choice.tokens += raw.get("tokens") or []
    choice.logprobs += raw.get("token_logprobs") or []
    choice.tops += [tops or {} for tops in raw.get("top_logprobs") or []]
    choice.offsets += raw.get("text_offset") or []
