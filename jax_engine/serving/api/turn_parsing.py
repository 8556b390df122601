"""How the turns of a request are parsed, and the grammar that constrains them.

A request offers tools and says which of them the model is to call. A model has its own form of
calls and of reasoning. Both together give the parsers of a turn. Where a call is required, or a
tool is strict, they give a grammar as well, which makes the model write valid calls.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

from jax_engine.checks import shown
from jax_engine.config.reasoning_markers import Start, reasoning_of_template
from jax_engine.errors import InvalidRequestError, need
from jax_engine.guided.compiler import rule_of
from jax_engine.guided.lark_grammar import Lark
from jax_engine.sampling_params import StructuredOutputsParams
from jax_engine.serving.api.api_errors import invalid
from jax_engine.serving.api.endpoint_requests import ChatRequest
from jax_engine.serving.parsers.json_tool_parsers import ArgumentsToolParser
from jax_engine.serving.parsers.parser_base import CallReader, Markers, ReasoningReader
from jax_engine.serving.parsers.plugin_classes import (
    ChatCompletionRequest,
    ChatCompletionToolsParam,
    FunctionDefinition,
    ReasoningParserManager,
    ToolParserManager,
)
from jax_engine.serving.parsers.plugin_readers import (
    PluginReasoningReader,
    PluginStyle,
    PluginTurn,
    plugin_format,
    wants_special,
)
from jax_engine.serving.parsers.reasoning_parser import ReasoningStyle
from jax_engine.serving.parsers.reasoning_styles import REASONING
from jax_engine.serving.parsers.tool_formats import (
    LIST_FORMAT,
    TOOL_FORMATS,
    Tool,
    ToolFormat,
    format_of_template,
)
from jax_engine.serving.parsers.turn_parser import SpecialTokenFilter, TurnParser
from jax_engine.tokenization.tokenizer import Tokenizer

_NAME = re.compile(r"[a-zA-Z0-9_.:-]{1,128}")


@dataclass(frozen=True)
class ToolChoice:
    """What a request's `tool_choice` asks for.

    Attributes:
        tools: those that may be called.
        several: whether a turn may call more than one.
    """

    kind: Literal["none", "auto", "required", "named"]
    tools: tuple[Tool, ...] = ()
    several: bool = True


def choice_of(
    tools: Sequence[dict[str, Any]] | None,
    choice: Any,
    parallel: bool | None,
    schemas: Sequence[str] = (),
) -> ToolChoice:
    """
    Args:
        schemas: what errors call the schema of each tool; none: by its place in `tools`.

    Raises:
        ApiError: a tool has a wrong form, or the choice names none of them.
    """
    known = _tools(tools or [], schemas)
    if choice is None:
        choice = "auto" if known else "none"
    if choice in ("none", "auto"):
        return ToolChoice(choice if known else "none", tuple(known), parallel is not False)
    if not known:
        raise invalid("tool_choice", f"tool_choice is {shown(choice)}, but there are no tools")
    if choice == "required":
        return ToolChoice("required", tuple(known), parallel is not False)
    name = _named(choice)
    found = [one for one in known if one.name == name]
    if not found:
        names = ", ".join(one.name for one in known)
        raise invalid(
            "tool_choice", f"tool_choice must name one of the tools ({names}), got {shown(name)}"
        )
    return ToolChoice("named", tuple(found), several=False)


def _named(choice: Any) -> str:
    function = choice.get("function") if isinstance(choice, dict) else None
    is_function = function is not None and choice.get("type", "function") == "function"
    name = function.get("name") if is_function and isinstance(function, dict) else None
    if not isinstance(name, str):
        raise invalid(
            "tool_choice",
            "tool_choice must be 'none', 'auto', 'required' or {'type': 'function', 'function': "
            f"{{'name': ..}}}}, got {shown(choice)}",
        )
    return name


def _tools(tools: Sequence[dict[str, Any]], schemas: Sequence[str]) -> list[Tool]:
    known: dict[str, Tool] = {}
    for i, one in enumerate(tools):
        schema = schemas[i] if schemas else f"tools[{i}].function.parameters"
        tool = _tool(f"tools[{i}]", one, schema)
        if tool.name in known:
            name = f"{schema.rpartition('.')[0]}.name"
            raise invalid(name, f"two tools are called {shown(tool.name)}")
        known[tool.name] = tool
    return list(known.values())


def _tool(where: str, tool: dict[str, Any], schema: str) -> Tool:
    if tool.get("type") != "function":
        raise invalid(
            f"{where}.type", f"{where}.type must be 'function', got {shown(tool.get('type'))}"
        )
    function = tool.get("function")
    if not isinstance(function, dict):
        raise invalid(
            f"{where}.function",
            f"{where}.function must be {{'name': .., 'parameters': ..}}, got {shown(function)}",
        )
    where = schema.rpartition(".")[0]
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise invalid(
            f"{where}.name",
            f"{where}.name must be 1 to 128 letters, digits, or any of _.:-, got {shown(name)}",
        )
    strict = function.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise invalid(f"{where}.strict", f"{where}.strict must be a boolean, got {shown(strict)}")
    return Tool(name, _schema(schema, function.get("parameters")), bool(strict), schema)


def _schema(where: str, schema: Any) -> dict[str, Any]:
    if schema is None:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    kind = schema.get("type", "object") if isinstance(schema, dict) else None
    if kind != "object":
        raise invalid(where, f"{where} must be a JSON schema of type 'object', got {shown(schema)}")
    found: dict[str, Any] = {"type": "object"} | schema
    return found


GRAMMARS = 256  # kept, once found valid


@dataclass(frozen=True)
class TurnFormat:
    """How a model writes calls and reasoning; None: it has no form that is known.

    Attributes:
        hidden: its special tokens, but for the markers of this turn_format.
        shows_special: whether a marker is a special token, so that texts must show them.
        names: names of the forms of calls and of reasoning, as the server's flags have them.
    """

    calls: ToolFormat | None = None
    reasoning: ReasoningStyle | None = None
    hidden: Markers = field(default_factory=lambda: Markers(()))
    shows_special: bool = False
    names: tuple[str, str] = ("none", "none")

    @classmethod
    def of(
        cls,
        tokenizer: Tokenizer,
        template: str | None,
        calls: str | None = None,
        reasoning: str | None = None,
    ) -> "TurnFormat":
        """
        Args:
            template: the chat template, which tells what is not named.
            calls: a name in TOOL_FORMATS or of a plugin, or "none".
            reasoning: a name in REASONING or of a plugin, or "none".
        """
        form = TOOL_FORMATS.get(calls) if calls else format_of_template(template)
        if calls in ToolParserManager.parsers:
            form = plugin_format(calls, tokenizer)
        reasoning = reasoning or reasoning_of_template(template) or "none"
        style = REASONING.get(reasoning)
        if reasoning in ReasoningParserManager.parsers:
            style = PluginStyle.of(reasoning, tokenizer)
        markers = (form.markers if form else ()) + (style.markers if style else ())
        added = tokenizer.backend.get_added_tokens_decoder().values()
        special = {str(one.content) for one in added if one.special}
        hidden, shows = Markers(special - set(markers)), bool(special & set(markers))
        names = ("none" if form is None else form.name, reasoning)
        return cls(form, style, hidden, shows, names)


@dataclass(frozen=True)
class TurnPlan:
    """How the turns of one request are read.

    Attributes:
        grammar: constrains the turns; None: nothing does.
        shows_special: whether the text of the turns must show special tokens.
    """

    grammar: StructuredOutputsParams | None
    shows_special: bool
    new_turn: Callable[[], TurnParser]


def plan_of(
    turn_format: TurnFormat,
    tokenizer: Tokenizer,
    choice: ToolChoice,
    grammar: StructuredOutputsParams | None,
    prompt: str,
    *,
    keeps_special: bool = False,
    include_reasoning: bool = True,
    request: ChatRequest | None = None,
    prompt_ids: Sequence[int] = (),
) -> TurnPlan:
    """
    Args:
        grammar: the request's own, for the content of its answer. Where a tool must be called,
            there is no content, and the tool's grammar is the only one.
        prompt: the text before the turn.
        keeps_special: the request asks for special tokens in the text.
        request, prompt_ids: for parsers of plugins.

    Raises:
        ApiError: a schema is invalid.
    """
    if choice.kind in ("required", "named"):
        grammar = None
    style = turn_format.reasoning
    start = "closed" if style is None else style.start(prompt)
    form, guided = _form(turn_format, choice, has_grammar=grammar is not None)
    if guided or (grammar is not None and start != "closed"):
        grammar = _grammar(tokenizer, style, start, choice, form, grammar)
    special = turn_format.shows_special and (style is not None or choice.kind != "none")
    plugin = form if form is not None and form.is_plugin else None
    asked, shows_all = None, False
    if plugin is not None or isinstance(style, PluginStyle):
        asked = _plugin_request(request, choice)
    if plugin is not None and asked is not None:
        shows_all = wants_special(plugin.name, tokenizer, asked)

    def new_turn() -> TurnParser:
        turn = None if asked is None else PluginTurn(asked, prompt_ids)
        hides = special and not keeps_special and not shows_all
        return TurnParser(
            SpecialTokenFilter(turn_format.hidden) if hides else None,
            _reasoning_reader(style, start, tokenizer, turn),
            _reader(choice, form, turn, guided=guided),
            include_reasoning=include_reasoning,
            plugin=turn,
        )

    return TurnPlan(grammar, special or shows_all, new_turn)


def _plugin_request(request: ChatRequest | None, choice: ToolChoice) -> ChatCompletionRequest:
    """A request as the parsers of plugins see it."""
    tools = [
        ChatCompletionToolsParam(
            function=FunctionDefinition(name=one.name, parameters=one.parameters)
        )
        for one in choice.tools
    ]
    if request is None:
        return ChatCompletionRequest(tools=tools, tool_choice=choice.kind)
    return ChatCompletionRequest(
        messages=request.messages,
        model=request.model,
        tools=tools,
        tool_choice=request.tool_choice,
        stream=request.stream,
        include_reasoning=request.include_reasoning,
        chat_template_kwargs=request.chat_template_kwargs,
    )


def _reasoning_reader(
    style: ReasoningStyle | None, start: Start, tokenizer: Tokenizer, turn: PluginTurn | None
) -> ReasoningReader | None:
    if isinstance(style, PluginStyle) and turn is not None:
        return PluginReasoningReader(style.name, tokenizer, turn)
    return None if style is None else style.parser(start)


def _form(
    turn_format: TurnFormat, choice: ToolChoice, *, has_grammar: bool
) -> tuple[ToolFormat | None, bool]:
    """The form of a request's calls, and whether a grammar makes them."""
    own = turn_format.calls
    with_grammar = own is not None and own.grammar is not None
    if choice.kind == "none":
        return None, False
    if choice.kind != "auto":
        form = own if with_grammar else LIST_FORMAT
        return (form if with_grammar or choice.kind == "required" else None), True
    if has_grammar and not with_grammar:
        return None, False  # the answer has its grammar: calls are not part of it
    # Many clients make all tools strict, so a form without a grammar takes strict tools, too.
    strict = any(tool.strict for tool in choice.tools)
    return own, with_grammar and (strict or not choice.several or has_grammar)


def _reader(
    choice: ToolChoice, form: ToolFormat | None, turn: PluginTurn | None, *, guided: bool
) -> CallReader | None:
    if choice.kind == "named" and form is None:
        return ArgumentsToolParser(choice.tools[0].name, guided=True)
    if form is None:
        return None
    tools = {tool.name: tool.parameters for tool in choice.tools}
    more = {"turn": turn} if form.is_plugin else {}
    return form.reader(form.new_id, guided=guided, several=choice.several, tools=tools, **more)


def _grammar(
    tokenizer: Tokenizer,
    style: ReasoningStyle | None,
    start: Start,
    choice: ToolChoice,
    form: ToolFormat | None,
    own: StructuredOutputsParams | None,
) -> StructuredOutputsParams:
    """What the request's own grammar and its tools allow, behind the reasoning."""
    need("llguidance", "tools with tool_choice or strict=true")
    lark = Lark(tokenizer, lenient=choice.kind == "auto")
    try:
        answer = _answer(lark, choice, form, own)
    except (ValueError, RecursionError) as error:
        message = f"structured_outputs must be a valid grammar: {error}"
        raise InvalidRequestError(message) from error
    if style is not None and start != "closed":
        answer = f"{style.before_answer(lark, start)} ({answer})"
    return StructuredOutputsParams(grammar=lark.text(answer))


def _answer(
    lark: Lark, choice: ToolChoice, form: ToolFormat | None, own: StructuredOutputsParams | None
) -> str:
    if choice.kind == "none" or (choice.kind == "auto" and form is None):
        assert own is not None
        return rule_of(lark, own)
    tools = choice.tools
    if choice.kind == "auto":
        tools = tuple(t if t.strict else replace(t, parameters=_ANY) for t in tools)
    _check_schemas(lark, tools)
    if form is None:
        return lark.json(tools[0].parameters)
    assert form.grammar is not None
    calls = form.grammar(lark, tools, choice.several)
    if choice.kind != "auto":
        return f"{lark.marker(form.marker)} {calls}" if form.marker else calls
    if own is not None:
        return f"{rule_of(lark, own)} | {lark.marker(form.marker) if form.marker else ''} {calls}"
    if form.marker:
        return f"{lark.without(form.marker)} | {lark.up_to(form.marker)} {calls}"
    text = lark.terminal("/(\\s*[^{\\s](.|\\n)*)?/ & ~/\\s*<\\|python_tag\\|>(.|\\n)*/")
    return f"{text} | {calls}"


_ANY: dict[str, Any] = {"type": "object"}


def _check_schemas(lark: Lark, tools: tuple[Tool, ...]) -> None:
    for tool in tools:
        problem = _problem(lark.schema(tool.parameters))
        if problem:
            hint = "" if lark.lenient else ", or let the model choose (tool_choice 'auto')"
            raise invalid(
                tool.where,
                f"{tool.where} must be a JSON schema that a grammar can hold, but that of the tool "
                f"{shown(tool.name)} cannot be one: {problem}. Change the schema{hint}",
            )


@lru_cache(GRAMMARS)
def _problem(schema: str) -> str:
    """Why a JSON schema can be no grammar; "": it can."""
    from llguidance import LLMatcher, grammar_from

    found: str = LLMatcher.validate_grammar(grammar_from("json_schema", schema))
    return " ".join(found.split())
