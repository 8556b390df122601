"""The parser of calls whose arguments stand between tags: Qwen 3 Coder's, GLM's, MiniMax's.

A tag holds text, so the tool's JSON schema tells a number or a list from a string.
"""

import json
from dataclasses import dataclass
from typing import Any

from jax_engine.serving.parsers.parser_base import Reading
from jax_engine.serving.parsers.pythonic_tool_parser import python_value
from jax_engine.serving.parsers.section_tool_parser import SectionMarkers, SectionToolParser
from jax_engine.serving.parsers.tool_parser import json_text


@dataclass(frozen=True)
class CallTags:
    """What stands around the parts of a call.

    Attributes:
        begin, end: around one call, or around several.
        call, named, close: before a name, behind it, and behind the arguments. `call` is "" where
            `begin` is followed by the name; then `close` is "", and `end` ends a call.
        key, key_end, value, value_end: around an argument's name and its value. `value` is ""
            where `key_end` is followed by the value.
        is_padded: a line break stands before a value and behind it.
    """

    begin: str
    end: str
    call: str
    named: str
    close: str
    key: str
    key_end: str
    value: str
    value_end: str
    is_padded: bool = False


class TaggedToolParser(SectionToolParser):
    """Calls whose arguments have tags. One whose end is missing, or with an argument twice, is
    none.
    """

    tags: CallTags

    @property
    def section(self) -> SectionMarkers:
        """As `SectionToolParser.section`."""
        tags = self.tags
        return SectionMarkers(tags.begin, tags.end if tags.close else "", tags.call)

    def _call(self, held: str) -> Reading[bool]:
        """As `SectionToolParser._call`."""
        tags = self.tags
        name = yield from self.name()
        named = (yield from self.literal(tags.named)) if tags.named else ""
        held += name + (named or "")
        arguments = dict[str, Any]()
        is_call = bool(name) and named is not None
        while is_call:
            held += yield from self.space()
            opened = yield from self.literal(tags.key, tags.close or tags.end)
            held += opened or ""
            if opened != tags.key:
                is_call = opened is not None
                break
            text, key, value = yield from self._argument()
            held += text
            is_call = value is not None and key not in arguments
            if value is not None:
                arguments[key] = self._typed(name, key, value)
        if is_call:
            self.call(name, json_text(arguments))
        else:
            self.emit(held)
        return is_call

    def _argument(self) -> Reading[tuple[str, str, str | None]]:
        """All that was read behind the first tag of an argument, its name, and its value."""
        tags = self.tags
        key, ended = yield from self.text_before(tags.key_end)
        held = key + ended
        if ended and tags.value:
            held += yield from self.space()
            ended = (yield from self.literal(tags.value)) or ""
            held += ended
        if not ended:
            return held, key, None
        value, ended = yield from self.text_before(tags.value_end)
        held += value + ended
        if tags.is_padded:
            value = value.removeprefix("\n").removesuffix("\n")
        return held, key.strip(), value if ended else None

    def _typed(self, name: str, key: str, text: str) -> Any:
        """The value that a text stands for: JSON or a literal of Python, if its type is right."""
        schema = (self.tools or {}).get(name, {}).get("properties", {})
        types = types_of(schema.get(key) if isinstance(schema, dict) else None)
        if types == {"string"}:
            return text
        try:
            value = value_of(text)
        except (ValueError, SyntaxError, KeyError, RecursionError, OverflowError):
            return text
        if isinstance(value, float) and value.is_integer() and "integer" in types:
            value = int(value)
        is_text = isinstance(value, str) or not is_one_of(types, value)
        return text if is_text else value


def value_of(text: str) -> Any:
    """A value as JSON, or as Python writes it; raises what `python_value` raises."""
    try:
        value = json.loads(text, strict=False)
    except ValueError:
        value = python_value(text)
    json_text(value).encode()
    return value


def types_of(schema: Any) -> set[str]:
    """The types that a schema names; none: any but strings alone.

    A client's schema may be unsound, or deeper than Python recurses. What is no type is left out.
    """
    found, todo = set[str](), [schema]
    while todo:
        one = todo.pop()
        if not isinstance(one, dict):
            continue
        named, choices = one.get("type"), one.get("enum")
        types = {
            name for name in (named if isinstance(named, list) else [named]) if type(name) is str
        }
        if not types and isinstance(choices, list):
            types = set(map(_type_of, choices))
        found |= types
        for several in ("anyOf", "oneOf", "allOf"):
            if isinstance(one.get(several), list):
                todo += one[several]
    return found


def is_one_of(types: set[str], value: Any) -> bool:
    """Whether a value has one of these types; any value has if none is known."""
    kind = _type_of(value)
    return kind in types or (kind == "integer" and "number" in types) or not types & _TYPES


_TYPES = {"string", "integer", "number", "boolean", "array", "object", "null"}


def _type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case list():
            return "array"
        case dict():
            return "object"
    return "string"


_FUNCTION = ("<function=", ">", "</function>", "<parameter=", ">", "", "</parameter>", True)


class Qwen3CoderToolParser(TaggedToolParser):
    """`<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>`."""

    tags = CallTags("<tool_call>", "</tool_call>", *_FUNCTION)


class SeedOssToolParser(TaggedToolParser):
    """As Qwen 3 Coder's, within `<seed:tool_call>`."""

    tags = CallTags("<seed:tool_call>", "</seed:tool_call>", *_FUNCTION)


class MiniMaxM2ToolParser(TaggedToolParser):
    """`<invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke>`, one or several."""

    tags = CallTags(
        "<minimax:tool_call>",
        "</minimax:tool_call>",
        '<invoke name="',
        '">',
        "</invoke>",
        '<parameter name="',
        '">',
        "",
        "</parameter>",
    )


class Glm45ToolParser(TaggedToolParser):
    """`<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>`."""

    tags = CallTags(
        "<tool_call>", "</tool_call>", "", "", "", "<arg_key>", "</arg_key>", "<arg_value>",
        "</arg_value>",
    )  # fmt: skip
