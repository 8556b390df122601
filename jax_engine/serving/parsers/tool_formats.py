"""The forms in which models write calls: each with its parser and its grammar."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from jax_engine.guided.lark_grammar import Lark, quoted
from jax_engine.serving.parsers.harmony_parsers import HARMONY, HarmonyToolParser
from jax_engine.serving.parsers.json_tool_parsers import (
    FUNCTION_CALL,
    FUNCTOOLS,
    PYTHON_TAG,
    TOOL_CALL,
    TOOL_CALL_END,
    TOOL_CALL_TOKEN,
    TOOL_CALLS,
    TOOL_CALLS_END,
    Granite20bToolParser,
    GraniteToolParser,
    HermesToolParser,
    ListToolParser,
    Llama3JsonToolParser,
    MiniMaxToolParser,
    Phi4MiniToolParser,
    XlamToolParser,
)
from jax_engine.serving.parsers.marked_tool_parser import (
    DEEPSEEK_V3,
    DEEPSEEK_V31,
    KIMI_K2,
    CallMarkers,
    DeepSeekV3ToolParser,
    DeepSeekV31ToolParser,
    KimiK2ToolParser,
    MarkedToolParser,
    marker_texts,
    written,
)
from jax_engine.serving.parsers.mistral_tool_parser import (
    ARGS,
    CALL_ID,
    MISTRAL_CALLS,
    MistralToolParser,
    mistral_id,
)
from jax_engine.serving.parsers.parser_base import CallReader
from jax_engine.serving.parsers.pythonic_tool_parser import (
    FUNCTION_CALLS,
    FUNCTION_CALLS_END,
    Olmo3ToolParser,
    PythonicToolParser,
)
from jax_engine.serving.parsers.tagged_tool_parser import (
    Glm45ToolParser,
    MiniMaxM2ToolParser,
    Qwen3CoderToolParser,
    SeedOssToolParser,
    TaggedToolParser,
)
from jax_engine.serving.parsers.tool_parser import call_id, json_text


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
        is_plugin: whether its reader takes `turn`, too.
    """

    name: str
    reader: Callable[..., CallReader]
    marker: str = ""
    grammar: Callable[[Lark, Sequence[Tool], bool], str] | None = None
    markers: tuple[str, ...] = ()
    new_id: Callable[[], str] = call_id
    is_plugin: bool = False


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
    return _repeated(lark.rule(" | ".join(calls)), lark.marker(MISTRAL_CALLS), several=several)


def _minimax(lark: Lark, tools: Sequence[Tool], several: bool) -> str:
    call = lark.rule(f'"\\n" {_object(lark, tools, "arguments")}')
    return f'{_repeated(call, "", several=several)} "\\n" {lark.marker(TOOL_CALLS_END)}'


def _marked(name: str, reader: type[MarkedToolParser], marks: CallMarkers) -> ToolFormat:
    """The form of calls between markers. Kimi's ids count the calls, but any number is one."""

    def grammar(lark: Lark, tools: Sequence[Tool], several: bool) -> str:
        is_kimi = marks is KIMI_K2
        number = f" {lark.terminal('/[0-9]/')}" if is_kimi else ""
        calls = [
            written(
                marks,
                quoted(f"functions.{tool.name}:" if is_kimi else tool.name) + number,
                lark.json(tool.parameters),
                lark.marker,
            )
            for tool in tools
        ]
        call = lark.rule(" | ".join(calls))
        return f"{_repeated(call, '', several=several)} {lark.marker(marks.section_end)}"

    return ToolFormat(name, reader, marks.section, grammar, marker_texts(marks))


def _tagged(name: str, reader: type[TaggedToolParser]) -> ToolFormat:
    tags = reader.tags
    texts = (tags.begin, tags.end, tags.key, tags.key_end, tags.value, tags.value_end)
    return ToolFormat(name, reader, tags.begin, None, tuple(filter(None, texts)))


TOOL_FORMATS = {
    one.name: one
    for one in (
        ToolFormat("hermes", HermesToolParser, TOOL_CALL, _hermes, (TOOL_CALL, TOOL_CALL_END)),
        ToolFormat("llama3_json", Llama3JsonToolParser, "", _llama, (PYTHON_TAG,)),
        ToolFormat(
            "mistral",
            MistralToolParser,
            MISTRAL_CALLS,
            _mistral,
            (MISTRAL_CALLS, ARGS, CALL_ID),
            mistral_id,
        ),
        ToolFormat(
            "granite", GraniteToolParser, TOOL_CALL_TOKEN, _granite, (TOOL_CALL_TOKEN, TOOL_CALL)
        ),
        ToolFormat("granite-20b-fc", Granite20bToolParser, FUNCTION_CALL, None, (FUNCTION_CALL,)),
        ToolFormat("pythonic", PythonicToolParser),
        ToolFormat(
            "olmo3", Olmo3ToolParser, FUNCTION_CALLS, None, (FUNCTION_CALLS, FUNCTION_CALLS_END)
        ),
        ToolFormat("xlam", XlamToolParser, "", None, (TOOL_CALL, TOOL_CALL_END)),
        # No grammar: it would forbid the word in prose.
        ToolFormat("phi4_mini_json", Phi4MiniToolParser, FUNCTOOLS),
        ToolFormat(
            "minimax", MiniMaxToolParser, TOOL_CALLS, _minimax, (TOOL_CALLS, TOOL_CALLS_END)
        ),
        ToolFormat("openai", HarmonyToolParser, "", None, HARMONY),
        _marked("deepseek_v3", DeepSeekV3ToolParser, DEEPSEEK_V3),
        _marked("deepseek_v31", DeepSeekV31ToolParser, DEEPSEEK_V31),
        _marked("kimi_k2", KimiK2ToolParser, KIMI_K2),
        _tagged("qwen3_coder", Qwen3CoderToolParser),
        _tagged("seed_oss", SeedOssToolParser),
        _tagged("minimax_m2", MiniMaxM2ToolParser),
        _tagged("glm45", Glm45ToolParser),
        _tagged("glm47", Glm45ToolParser),
    )
}
LIST_FORMAT = ToolFormat("list", ListToolParser, "", _list)  # of models without a form of their own
_IN_TEMPLATES = (  # the first that is found in a model's template
    ("<|channel|>commentary", "openai"),
    ("<seed:tool_call>", "seed_oss"),
    ("<function=", "qwen3_coder"),
    ("<arg_key>", "glm45"),
    ("<minimax:tool_call>", "minimax_m2"),
    (TOOL_CALLS, "minimax"),
    (TOOL_CALL_TOKEN, "granite"),
    (TOOL_CALL, "hermes"),
    (MISTRAL_CALLS, "mistral"),
    (PYTHON_TAG, "llama3_json"),
    ('"parameters": dictionary of argument name', "llama3_json"),
    ("[func_name1(params_name1=", "pythonic"),
    (FUNCTION_CALLS, "olmo3"),
    (FUNCTOOLS, "phi4_mini_json"),
    (KIMI_K2.section, "kimi_k2"),
    ("'function<｜tool▁sep｜>'", "deepseek_v3"),
    (DEEPSEEK_V3.section, "deepseek_v31"),
)


def format_of_template(template: str | None) -> ToolFormat | None:
    """The form of calls that a template shows."""
    for text, name in _IN_TEMPLATES:
        if template is not None and text in template:
            return TOOL_FORMATS[name]
    return None
