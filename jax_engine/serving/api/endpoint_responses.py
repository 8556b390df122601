"""The answers of OpenAI's endpoints that generate: choices, tool calls, and the usage of tokens.

A field that is `UNSET` is not written. `TokenCounts` counts the tokens of a request for its usage.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType
from starlette.responses import Response

from jax_engine.outputs import RequestOutput
from jax_engine.serving.api.request_timings import Timings
from jax_engine.serving.parsers.parser_base import CallDelta


class CalledFunction(Struct):
    """The tool of a call, and its arguments as JSON text."""

    arguments: str
    name: str | UnsetType = UNSET


class ToolCall(Struct):
    """A call of a tool."""

    id: str
    function: CalledFunction
    type: str = "function"


class ToolCallDelta(Struct):
    """What is new in a call: its id and its tool's name come first, then its arguments."""

    index: int
    function: CalledFunction
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET


def tool_calls(pieces: Sequence[CallDelta]) -> list[ToolCall]:
    """Whole calls."""
    calls: list[ToolCall] = []
    for piece in pieces:
        if piece.id is not None:
            calls.append(ToolCall(piece.id, CalledFunction("", piece.name or "")))
        calls[piece.index].function.arguments += piece.arguments
    return calls


def tool_call_deltas(pieces: Sequence[CallDelta]) -> list[ToolCallDelta]:
    """What is new in calls; pieces of one call's arguments are one."""
    deltas: list[ToolCallDelta] = []
    for piece in pieces:
        if piece.id is not None:
            function = CalledFunction(piece.arguments, piece.name or "")
            deltas.append(ToolCallDelta(piece.index, function, piece.id, "function"))
        elif deltas and deltas[-1].index == piece.index:
            deltas[-1].function.arguments += piece.arguments
        else:
            deltas.append(ToolCallDelta(piece.index, CalledFunction(piece.arguments)))
    return deltas


type Optional[T] = T | UnsetType | None
type Ids = Optional[list[int]]
type PromptLogprobs = Optional[list[dict[str, Any] | None]]


class CachedTokens(Struct):
    """How many of the prompt's tokens were in the prefix cache."""

    cached_tokens: int


class CompletionDetails(Struct):
    """How many of the tokens were reasoning; how many were guessed out of the prediction, and how
    many of the prediction's tokens the answer does not have."""

    reasoning_tokens: int | UnsetType = UNSET
    accepted_prediction_tokens: int | UnsetType = UNSET
    rejected_prediction_tokens: int | UnsetType = UNSET


class Usage(Struct):
    """Tokens of a request."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    prompt_tokens_details: CachedTokens | UnsetType = UNSET
    completion_tokens_details: CompletionDetails | UnsetType = UNSET


class CompletionLogprobs(Struct):
    """Log-probabilities of a completion: an entry for each token."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class CompletionChoice(Struct):
    """A completion, or what is new in it."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: Ids = UNSET
    prompt_token_ids: Ids = UNSET
    prompt_logprobs: PromptLogprobs = UNSET


class TopLogprob(Struct):
    """A token that might have been."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(Struct):
    """A token, and those that might have been in its place."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Struct):
    """Log-probabilities of an answer: an entry for each token."""

    content: list[TokenLogprob]


class ChatMessage(Struct):
    """An answer. Its reasoning has two names, since clients read one or the other.

    As with OpenAI and vLLM, one without calls has no `tool_calls`.
    """

    role: str
    content: str | None
    refusal: str | None = None
    tool_calls: list[ToolCall] | UnsetType = UNSET
    reasoning: str | None = None
    reasoning_content: str | None = None
    annotations: None = None
    audio: None = None
    function_call: None = None


class Delta(Struct):
    """What is new in an answer."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET


class ChatChoice(Struct):
    """An answer and how it ended."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: Ids = UNSET


class ChatChunkChoice(Struct):
    """What is new in an answer, and how it ended if it has."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: Ids = UNSET


class GenerationResponse[Choice](Struct):
    """The answer to a request that generates, or an event of its stream."""

    id: str
    object: str
    created: int
    model: str
    choices: list[Choice]
    usage: Optional[Usage] = UNSET
    prompt_token_ids: Ids = UNSET
    prompt_logprobs: PromptLogprobs = UNSET
    service_tier: Optional[str] = UNSET
    system_fingerprint: Optional[str] = UNSET
    kv_transfer_params: Optional[str] = UNSET
    metrics: Optional[Timings] = UNSET


def with_nulls[Content: Struct](content: Content) -> Content:
    """A whole answer, or a choice of one, whose unset fields are null: clients read them.

    Events of streams have only the fields that say something.
    """
    for name in content.__struct_fields__:
        if getattr(content, name) is UNSET:
            setattr(content, name, None)
    return content


encode = msgspec.json.Encoder().encode


def json_response(content: object, headers: dict[str, str] | None = None) -> Response:
    """An answer of status 200."""
    return Response(encode(content), headers=headers, media_type="application/json")


class TokenCounts:
    """Tokens so far of the prompts of one request, by each prompt's number.

    Attributes:
        predicted: once a prompt's output has ended: its tokens that were guessed out of its
            prediction, and the prediction's tokens that it does not have.
    """

    def __init__(self) -> None:
        self.predicted = 0, 0
        self._prompts: dict[int, int] = {}
        self._cached: dict[int, int] = {}
        self._generated: dict[tuple[int, int], int] = {}

    def add(self, number: int, output: RequestOutput, *, shown: bool = True) -> None:
        """Takes an output, whose tokens are all new.

        Args:
            shown: whether its tokens are part of the answer.
        """
        self._prompts[number] = len(output.prompt_token_ids)
        self._cached[number] = output.num_cached_tokens
        if output.finished:
            metrics = output.metrics
            self.predicted = (
                metrics.num_accepted_prediction_tokens,
                metrics.num_rejected_prediction_tokens,
            )
        for one in output.outputs if shown else ():
            place = (number, one.index)
            self._generated[place] = self._generated.get(place, 0) + len(one.token_ids)

    @property
    def cached(self) -> int:
        """The prompt's tokens that were in the prefix cache."""
        return sum(self._cached.values())

    def usage(self) -> Usage:
        """All that was counted."""
        prompt, generated = sum(self._prompts.values()), sum(self._generated.values())
        return Usage(prompt, generated, prompt + generated, CachedTokens(self.cached))

    def usage_of(self, number: int, choice: int | None) -> Usage:
        """What one choice of a prompt has used so far, as vLLM's streams say it; None: no tokens
        of it yet."""
        prompt = self._prompts[number]
        generated = 0 if choice is None else self._generated.get((number, choice), 0)
        return Usage(prompt, generated, prompt + generated)
