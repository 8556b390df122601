"""Reader of calls that are Python: `[search(query="x", limit=3), now()]`. Nothing is evaluated."""

import ast
import re
import warnings
from typing import Any

from jax_engine.serving.openai.tools.call_reader import CallReader, json_text
from jax_engine.serving.openai.tools.letters import Reading

MAX_LETTERS, MAX_NAME = 1 << 20, 256
_BEGINS = re.compile(r"\[\s*([A-Za-z_][\w.]*)?\s*")
_JSON_NAMES = {"true": True, "false": False, "null": None}


class PythonicReader(CallReader):
    """The whole text is a list of calls with named arguments, all of them literals."""

    def _read(self) -> Reading[None]:
        text = yield from self.space()
        text += yield from self._bracketed()
        calls = _calls(text)
        for call in calls or ():
            self.call(*call)
        if calls is None:
            self.say(text)
        yield from self.rest()

    def _bracketed(self) -> Reading[str]:
        """Text up to the end of its first bracket, or up to where it can be no list of calls."""
        text, depth, quote, is_call = "", 0, "", False
        while char := (yield from self.next_char()):
            text += char
            if quote and char == "\\":
                text += yield from self.next_char()
            elif quote:
                quote = "" if char == quote else quote
            elif char in "'\"":
                quote = char
            else:
                depth += (char in "[({") - (char in "])}")
            if not is_call:
                is_call = char == "(" and _BEGINS.fullmatch(text[:-1]) is not None
                if not is_call and (len(text) > MAX_NAME or not _BEGINS.fullmatch(text)):
                    break
            if depth == 0 or len(text) > MAX_LETTERS:
                break
        return text


def _calls(text: str) -> list[tuple[str, str]] | None:
    """Names and arguments; None if the text is no list of calls."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of escapes that Python does not know
            tree = ast.parse(text.strip(), mode="eval").body
        if not isinstance(tree, ast.List) or not tree.elts:
            return None
        return [_call(one) for one in tree.elts]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _call(node: ast.expr) -> tuple[str, str]:
    if not isinstance(node, ast.Call) or node.args:
        raise ValueError
    name = ast.unparse(node.func)
    if not re.fullmatch(r"[\w.]+", name):
        raise ValueError
    arguments = {}
    for keyword in node.keywords:
        if keyword.arg is None or keyword.arg in arguments:
            raise ValueError
        arguments[keyword.arg] = _value(keyword.value)
    return name, json_text(arguments)


def _value(node: ast.expr) -> Any:
    """A literal that JSON can write."""
    match node:
        case ast.Constant(value=str() | int() | float() | None as value):
            return value
        case ast.Name(id=name) if name in _JSON_NAMES:
            return _JSON_NAMES[name]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [_value(one) for one in elements]
        case ast.Dict(keys=keys, values=values):
            return {_key(key): _value(one) for key, one in zip(keys, values, strict=True)}
    raise ValueError


def _key(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise ValueError
