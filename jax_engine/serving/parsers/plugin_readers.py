"""Reads a turn by a plugin's parsers: gives them texts and token ids as vLLM's server does.

A turn that comes at once is read by the method for whole texts, one that comes in pieces by the
other. What a parser raises ends its request with a `ParserFailedError`, and nothing else.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from jax_engine.config.reasoning_markers import Start
from jax_engine.guided.lark_grammar import Lark
from jax_engine.serving.parsers.parser_base import CallDelta, ParserFailedError
from jax_engine.serving.parsers.plugin_classes import (
    ChatCompletionRequest,
    ReasoningParserManager,
    ToolParserManager,
    markers_of,
)
from jax_engine.serving.parsers.reasoning_parser import ReasoningStyle
from jax_engine.serving.parsers.tool_formats import ToolFormat
from jax_engine.serving.parsers.tool_parser import call_id
from jax_engine.tokenization.tokenizer import Tokenizer

logger = logging.getLogger("jax_engine")


@dataclass
class PluginTurn:
    """What a plugin's parsers see of a turn beside its text.

    Attributes:
        prompt_ids: the prompt's tokens.
        ids: the turn's tokens, so far.
        num_new: how many of them came with the newest piece of text.
    """

    request: ChatCompletionRequest
    prompt_ids: Sequence[int] = ()
    ids: list[int] = field(default_factory=list)
    num_new: int = 0

    def take(self, token_ids: Sequence[int]) -> None:
        """Notes what came with a piece of text."""
        self.ids += token_ids
        self.num_new = len(token_ids)


class _Asked:
    """A plugin's parser, and the text that it has seen."""

    def __init__(self, what: str, cls: Callable[[Any], Any], tokenizer: Tokenizer) -> None:
        self._what = what
        self.parser = self.ask(cls, tokenizer.hugging_face)
        self._text = ""
        self._first = -1  # of the turn's tokens that it sees

    def ask(self, function: Callable[..., Any], *args: Any) -> Any:
        """What a function of the plugin says. Raises ParserFailedError."""
        try:
            return function(*args)
        except Exception as error:
            logger.exception("%s failed", self._what)
            kind = type(error).__name__
            message = f"the {self._what} raised {kind}: the server's log says where"
            raise ParserFailedError(message) from error

    def delta(self, method: Callable[..., Any], text: str, turn: PluginTurn, *more: Any) -> Any:
        """What it says of a piece of text."""
        known = len(turn.ids) - turn.num_new
        if self._first < 0:
            self._first = known
        before, ids = self._text, turn.ids[self._first :]
        self._text += text
        count = known - self._first
        return self.ask(method, before, self._text, text, ids[:count], ids, ids[count:], *more)

    @property
    def has_begun(self) -> bool:
        """Whether it has seen any text or token."""
        return self._first >= 0


class PluginToolReader:
    """Reads calls by a plugin's parser. As in `ToolParser`, but a call is never left open.

    Args:
        several: whether a turn may call more than one tool; else only the first call is given.
    """

    def __init__(
        self,
        name: str,
        tokenizer: Tokenizer,
        new_id: Callable[[], str] = call_id,
        *,
        turn: PluginTurn,
        several: bool = True,
        **_: Any,
    ) -> None:
        self._asked = _Asked(f"tool parser {name!r}", ToolParserManager.get(name), tokenizer)
        self._turn, self._new_id, self._several = turn, new_id, several
        self._indices: list[int] = []  # the plugin's numbers of the calls that were begun
        self._early: dict[int, str] = {}  # arguments that came before the name
        self.open = False

    @property
    def num_calls(self) -> int:
        """How many calls have begun."""
        return len(self._indices)

    def take(self, text: str, *, ended: bool, cut: bool = False) -> tuple[str, list[CallDelta]]:
        """As `ToolParser.take`."""
        parser, request = self._asked.parser, self._turn.request
        if ended and not self._asked.has_begun:
            found = self._asked.ask(parser.extract_tool_calls, text, request)
            whole: tuple[str, list[CallDelta]] = self._asked.ask(self._whole, text, found)
            return whole
        if not text and not (self._turn.num_new and self._asked.has_begun):
            return "", []
        method = parser.extract_tool_calls_streaming
        said = self._asked.delta(method, text, self._turn, request)
        return ("", []) if said is None else self._asked.ask(self._piece, said)

    def _whole(self, text: str, found: Any) -> tuple[str, list[CallDelta]]:
        if not found.tools_called:
            return (text if found.content is None else found.content), []
        calls = found.tool_calls if self._several else found.tool_calls[:1]
        self._indices = list(range(len(calls)))
        pieces = [
            CallDelta(i, one.function.arguments, one.id or self._new_id(), one.function.name)
            for i, one in enumerate(calls)
        ]
        return found.content or "", pieces

    def _piece(self, said: Any) -> tuple[str, list[CallDelta]]:
        content = said.content or ""
        if not isinstance(content, str):
            raise TypeError("content must be a text")
        pieces = [self._call(one) for one in said.tool_calls or ()]
        return content, [one for one in pieces if one is not None]

    def _call(self, one: Any) -> CallDelta | None:
        function = one.function
        name = None if function is None else function.name
        arguments = "" if function is None else function.arguments or ""
        if one.index in self._indices:
            number = self._indices.index(one.index)
            return CallDelta(number, arguments) if arguments else None
        if self._indices and not self._several:
            return None
        if not name:
            self._early[one.index] = self._early.get(one.index, "") + arguments
            return None
        self._indices.append(one.index)
        arguments = self._early.pop(one.index, "") + arguments
        return CallDelta(len(self._indices) - 1, arguments, one.id or self._new_id(), name)


class PluginReasoningReader:
    """Reads reasoning by a plugin's parser. As in `ReasoningParser`."""

    def __init__(self, name: str, tokenizer: Tokenizer, turn: PluginTurn) -> None:
        cls = ReasoningParserManager.get(name)
        self._asked, self._turn = _Asked(f"reasoning parser {name!r}", cls, tokenizer), turn
        has_ended = getattr(self._asked.parser, "is_reasoning_end", lambda ids: False)
        self._ended = bool(self._asked.ask(has_ended, list(turn.prompt_ids)))

    def take(self, text: str, *, ended: bool) -> tuple[str, str]:
        """As `ReasoningParser.take`."""
        if self._ended:  # in the prompt
            return "", text
        parser = self._asked.parser
        if ended and not self._asked.has_begun:
            method = _newest(parser, "extract_reasoning")
            reasoning, content = self._asked.ask(method, text, self._turn.request)
            return reasoning or "", content or ""
        if not text and not self._turn.num_new:
            return "", ""
        method = _newest(parser, "extract_reasoning", "_streaming")
        said = self._asked.delta(method, text, self._turn)
        return ("", "") if said is None else self._asked.ask(_reasoning_of, said)


def _newest(parser: Any, name: str, end: str = "") -> Callable[..., Any]:
    """The method of this name, or of vLLM's older one, which a class may have alone."""
    older = getattr(parser, f"{name}_content{end}", None)
    found: Callable[..., Any] = older or getattr(parser, name + end)
    return found


def _reasoning_of(said: Any) -> tuple[str, str]:
    older = getattr(said, "reasoning_content", None)
    return getattr(said, "reasoning", None) or older or "", said.content or ""


@dataclass(frozen=True)
class PluginStyle(ReasoningStyle):
    """Reasoning that a plugin reads.

    Its markers are those that the class tells, under vLLM's names; "": it tells none, and then a
    grammar of the request constrains the whole turn.
    """

    begin: str = ""
    end: str = ""
    name: str = ""

    def start(self, prompt: str) -> Start:
        """As `ReasoningMarkers.start`."""
        return super().start(prompt) if self.begin and self.end else "closed"

    def before_answer(self, lark: Lark, start: Start) -> str:
        """As `ReasoningStyle.before_answer`."""
        return super().before_answer(lark, start) if self.begin and self.end else ""

    @classmethod
    def of(cls, name: str, tokenizer: Tokenizer) -> "PluginStyle":
        """The style of a registered name. Raises ParserFailedError."""
        asked = _Asked(f"reasoning parser {name!r}", ReasoningParserManager.get(name), tokenizer)
        begin, end = asked.ask(markers_of, asked.parser)
        return cls(begin, end, name=name)


def plugin_format(name: str, tokenizer: Tokenizer) -> ToolFormat:
    """The form of calls that a registered name reads."""

    def reader(*args: Any, **options: Any) -> PluginToolReader:
        return PluginToolReader(name, tokenizer, *args, **options)

    return ToolFormat(name, reader, is_plugin=True)


def wants_special(name: str, tokenizer: Tokenizer, request: ChatCompletionRequest) -> bool:
    """Whether a parser of calls asks for special tokens in a request's texts.

    Raises:
        ParserFailedError: the plugin raises.
    """
    asked = _Asked(f"tool parser {name!r}", ToolParserManager.get(name), tokenizer)
    adjust = getattr(asked.parser, "adjust_request", None)
    if adjust is None:
        return False
    adjusted = asked.ask(adjust, request.model_copy())
    return not getattr(adjusted, "skip_special_tokens", True)
