"""The forms in which models write calls: each with its parser and its grammar."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from jax_engine.serving.parsers.json_tool_parsers import (
    PYTHON_TAG,
    TOOL_CALL,
    TOOL_CALL_END,
    TOOL_CALL_TOKEN,
    GraniteToolParser,
    HermesToolParser,
    ListToolParser,
    Llama3JsonToolParser,
)
from jax_engine.serving.parsers.lark_grammar import Lark, quoted
from jax_engine.serving.parsers.mistral_tool_parser import (
    ARGS,
    CALL_ID,
    TOOL_CALLS,
    MistralToolParser,
    mistral_id,
)
from jax_engine.serving.parsers.pythonic_tool_parser import PythonicToolParser
from jax_engine.serving.parsers.tool_parser import ToolParser, call_id, json_text


@dataclass(frozen=True)
class Tool:
    """A tool that a request offers.

    Attributes:
        parameters: the JSON schema of its arguments.
        strict: whether the arguments of every call conform to it.
        where: the schema's name in errors.
    """

    name: str
    parameters: dict[str, Any] = field(default_factory=dict)
    strict: bool = False
    where: str = "tools"


@dataclass(frozen=True)
class ToolFormat:
    """A form of calls.

    Attributes:
        marker: what calls begin with; "": nothing, and calls that a grammar makes are the whole
            text.
        grammar: what follows the first marker, for some tools, one call or several; None: the
            form has no grammar.
        markers: texts that may be special tokens, and are read all the same.
    """

    name: str
    reader: type[ToolParser]
    marker: str = ""
    grammar: Callable[[Lark, Sequence[Tool], bool], str] | None = None
    markers: tuple[str, ...] = ()
    new_id: Callable[[], str] = call_id


def _object(lark: Lark, tools: Sequence[Tool], arguments: str) -> str:
    """A JSON object that calls one of these tools."""
    calls = [
        f"{quoted(f'{{"name": {json_text(tool.name)}, "{arguments}": ')} "
        f'{lark.json(tool.parameters)} "}}"'
        for tool in tools
    ]
    return lark.rule(" | ".join(calls))


def _repeated(call: str, before_next: str, *, several: bool) -> str:
    return f"{call} ({before_next} {call})*" if several else call


def _hermes(lark: Lark, tools: Sequence[Tool], several: bool) -> str:
    end = lark.marker(TOOL_CALL_END)
    call = lark.rule(f'"\\n" {_object(lark, tools, "arguments")} "\\n" {end}')
    return _repeated(call, f'"\\n" {lark.marker(TOOL_CALL)}', several=several)


def _llama(lark: Lark, tools: Sequence[Tool], several: bool) -> str:
    return _repeated(_object(lark, tools, "parameters"), '"; "', several=several)


def _list(lark: Lark, tools: Sequence[Tool], several: bool, arguments: str = "parameters") -> str:
    call = _object(lark, tools, arguments)
    return f'"[" {_repeated(call, '", "', several=several)} "]"'


def _granite(lark: Lark, tools: Sequence[Tool], several: bool) -> str:
    return _list(lark, tools, several, "arguments")


def _mistral(lark: Lark, tools: Sequence[Tool], several: bool) -> str:
    args = lark.token(ARGS)
    if args is None:
        return _list(lark, tools, several, "arguments")
    calls = [f"{quoted(tool.name)} {args} {lark.json(tool.parameters)}" for tool in tools]
    return _repeated(lark.rule(" | ".join(calls)), lark.marker(TOOL_CALLS), several=several)


TOOL_FORMATS = {
    one.name: one
    for one in (
        ToolFormat("hermes", HermesToolParser, TOOL_CALL, _hermes, (TOOL_CALL, TOOL_CALL_END)),
        ToolFormat("llama3_json", Llama3JsonToolParser, "", _llama, (PYTHON_TAG,)),
        ToolFormat(
            "mistral",
            MistralToolParser,
            TOOL_CALLS,
            _mistral,
            (TOOL_CALLS, ARGS, CALL_ID),
            mistral_id,
        ),
        ToolFormat(
            "granite", GraniteToolParser, TOOL_CALL_TOKEN, _granite, (TOOL_CALL_TOKEN, TOOL_CALL)
        ),
        ToolFormat("pythonic", PythonicToolParser),
    )
}
LIST_FORMAT = ToolFormat("list", ListToolParser, "", _list)  # of models without a form of their own
_OTHERS = ("<function=", "<arg_key>")  # forms of Qwen 3 Coder and GLM-4.5, in Hermes' markers
_IN_TEMPLATES = (  # the first that is found in a model's template
    (TOOL_CALL_TOKEN, "granite"),
    (TOOL_CALL, "hermes"),
    (TOOL_CALLS, "mistral"),
    (PYTHON_TAG, "llama3_json"),
    ('"parameters": dictionary of argument name', "llama3_json"),
    ("[func_name1(params_name1=", "pythonic"),
)


def format_of_template(template: str | None) -> ToolFormat | None:
    """The form of calls that a template shows."""
    if any(one in (template or "") for one in _OTHERS):
        return None
    for text, name in _IN_TEMPLATES:
        if template is not None and text in template:
            return TOOL_FORMATS[name]
    return None
