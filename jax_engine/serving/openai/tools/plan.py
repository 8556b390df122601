"""How the turns of a request are read, and the grammar that makes them so."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from jax_engine.checks import shown
from jax_engine.errors import InvalidRequestError
from jax_engine.missing_package import need
from jax_engine.serving.openai.errors import invalid
from jax_engine.serving.openai.tools.call_reader import CallReader
from jax_engine.serving.openai.tools.choice import Choice
from jax_engine.serving.openai.tools.formats import FORMATS, LIST, Format, Tool, format_of_template
from jax_engine.serving.openai.tools.json_readers import ArgumentsReader
from jax_engine.serving.openai.tools.lark import Lark
from jax_engine.serving.openai.tools.letters import Marks
from jax_engine.serving.openai.tools.model_turn import ModelTurn
from jax_engine.serving.openai.tools.reasoning import (
    REASONING,
    ReasoningReader,
    ReasoningStyle,
    Start,
    reasoning_of_template,
)
from jax_engine.serving.openai.tools.special import SpecialReader
from jax_engine.structured_outputs import StructuredOutputsParams
from jax_engine.tokenization.tokenizer import Tokenizer

GRAMMARS = 256  # kept, once found valid


@dataclass(frozen=True)
class Dialect:
    """How a model writes calls and reasoning; None: it has no form that is known.

    Attributes:
        hidden: its special tokens, but for the markers of this dialect.
        shows_special: whether a marker is a special token, so that texts must show them.
    """

    calls: Format | None = None
    reasoning: ReasoningStyle | None = None
    hidden: Marks = field(default_factory=lambda: Marks(()))
    shows_special: bool = False

    @classmethod
    def of(
        cls,
        tokenizer: Tokenizer,
        template: str | None,
        calls: str | None = None,
        reasoning: str | None = None,
    ) -> "Dialect":
        """
        Args:
            template: the chat template, which tells what is not named.
            calls: a name in FORMATS, or "none".
            reasoning: a name in REASONING, or "none".
        """
        form = FORMATS.get(calls) if calls else format_of_template(template)
        style = REASONING.get(reasoning) if reasoning else reasoning_of_template(template)
        markers = (form.markers if form else ()) + ((style.begin, style.end) if style else ())
        added = tokenizer.backend.get_added_tokens_decoder().values()
        special = {str(one.content) for one in added if one.special}
        return cls(form, style, Marks(special - set(markers)), bool(special & set(markers)))


@dataclass(frozen=True)
class Plan:
    """How the turns of one request are read.

    Attributes:
        grammar: constrains the turns; None: nothing does.
        shows_special: whether the text of the turns must show special tokens.
    """

    grammar: StructuredOutputsParams | None
    shows_special: bool
    new_turn: Callable[[], ModelTurn]


def plan_of(
    dialect: Dialect,
    tokenizer: Tokenizer,
    choice: Choice,
    grammar: StructuredOutputsParams | None,
    prompt: str,
    *,
    keeps_special: bool = False,
    include_reasoning: bool = True,
) -> Plan:
    """
    Args:
        grammar: the request's own, for the content of its answer. Where a tool must be called,
            there is no content, and the tool's grammar is the only one.
        prompt: the text before the turn.
        keeps_special: the request asks for special tokens in the text.

    Raises:
        ApiError: a schema is invalid.
    """
    if choice.kind in ("required", "named"):
        grammar = None
    style = dialect.reasoning
    start = "closed" if style is None else style.start(prompt)
    form, guided = _form(dialect, choice, has_grammar=grammar is not None)
    if guided or (grammar is not None and start != "closed"):
        grammar = _grammar(tokenizer, style, start, choice, form, grammar)
    special = dialect.shows_special and (style is not None or choice.kind != "none")

    def new_turn() -> ModelTurn:
        return ModelTurn(
            SpecialReader(dialect.hidden) if special and not keeps_special else None,
            None if style is None else ReasoningReader(style, start),
            _reader(choice, form, guided=guided),
            include_reasoning=include_reasoning,
        )

    return Plan(grammar, special, new_turn)


def _form(dialect: Dialect, choice: Choice, *, has_grammar: bool) -> tuple[Format | None, bool]:
    """The form of a request's calls, and whether a grammar makes them."""
    own = dialect.calls
    with_grammar = own is not None and own.grammar is not None
    if choice.kind == "none":
        return None, False
    if choice.kind != "auto":
        form = own if with_grammar else LIST
        return (form if with_grammar or choice.kind == "required" else None), True
    if has_grammar and not with_grammar:
        return None, False  # the answer has its grammar: calls are not part of it
    # Many clients make all tools strict, so a form without a grammar takes strict tools, too.
    strict = any(tool.strict for tool in choice.tools)
    return own, with_grammar and (strict or not choice.several or has_grammar)


def _reader(choice: Choice, form: Format | None, *, guided: bool) -> CallReader | None:
    if choice.kind == "named" and form is None:
        return ArgumentsReader(choice.tools[0].name, guided=True)
    if form is None:
        return None
    names = frozenset(tool.name for tool in choice.tools)
    return form.reader(form.new_id, guided=guided, several=choice.several, names=names)


def _grammar(
    tokenizer: Tokenizer,
    style: ReasoningStyle | None,
    start: Start,
    choice: Choice,
    form: Format | None,
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
        thought = f"{lark.up_to(style.end)} /[ \\n]{{0,2}}/"
        if start == "maybe":
            thought = f"({lark.marker(style.begin)} {thought})?"
        answer = f"{thought} ({answer})"
    return StructuredOutputsParams(grammar=lark.text(answer))


def _answer(
    lark: Lark, choice: Choice, form: Format | None, own: StructuredOutputsParams | None
) -> str:
    if choice.kind == "none" or (choice.kind == "auto" and form is None):
        assert own is not None
        return lark.output(own)
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
        return f"{lark.output(own)} | {lark.marker(form.marker) if form.marker else ''} {calls}"
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
