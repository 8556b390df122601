"""Writes a grammar in Lark, as llguidance reads it."""

import json
import re
from typing import Any

from jax_engine.guided.compiler import grammar_of
from jax_engine.guided.json_schema import closed
from jax_engine.sampling_params import StructuredOutputsParams
from jax_engine.tokenization.tokenizer import Tokenizer

# Compact, as models are trained to write it
_FORM: dict[str, Any] = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
}


class Lark:
    """Rules of a grammar.

    Args:
        tokenizer: knows which markers are tokens of their own.
        lenient: Keywords of tools' schemas that no grammar can hold (uniqueItems, not, ..) do not
            constrain. Otherwise they make the grammar invalid.
    """

    def __init__(self, tokenizer: Tokenizer, *, lenient: bool = False) -> None:
        self._tokenizer = tokenizer
        self.lenient = lenient
        self._rules: list[str] = []

    def text(self, start: str) -> str:
        """The grammar whose first rule is `start`."""
        return "\n".join([f"start: {start}", *self._rules, ""])

    def rule(self, body: str, options: str = "") -> str:
        """The name of a new rule."""
        name = f"rule_{len(self._rules)}"
        self._rules.append(f"{name}{options}: {body}")
        return name

    def terminal(self, body: str) -> str:
        """The name of a new terminal."""
        name = f"TEXT_{len(self._rules)}"
        self._rules.append(f"{name}: {body}")
        return name

    def json(self, schema: dict[str, Any]) -> str:
        """Any value of a schema, with a blank behind each comma and colon."""
        return self.rule(f"%json {self.schema(schema)}")

    def schema(self, schema: dict[str, Any]) -> str:
        """A schema as llguidance is to read it."""
        return json.dumps(closed(schema) | {"x-guidance": _FORM | {"lenient": self.lenient}})

    def token(self, marker: str) -> str | None:
        """A marker that is a token of its own; llguidance spells all others."""
        index = self._tokenizer.backend.token_to_id(marker)
        added = self._tokenizer.backend.get_added_tokens_decoder()
        return f"<[{index}]>" if index is not None and index in added else None

    def marker(self, marker: str) -> str:
        """A marker, as the model writes it."""
        return self.token(marker) or quoted(marker)

    def up_to(self, marker: str) -> str:
        """Any text without a marker, and then the marker."""
        token = self.token(marker)
        if token is None:
            return self.rule(f"/(.|\\n)*{_escaped(marker)}/", "[lazy]")
        return f"{self.without(marker)} {token}"

    def without(self, marker: str) -> str:
        """Any text without a marker."""
        found = self.terminal(f"/(.|\\n)*/ & ~/(.|\\n)*{_escaped(marker)}(.|\\n)*/")
        return self.rule(found)

    def output(self, params: StructuredOutputsParams) -> str:
        """The outputs that a request's grammar allows."""
        if params.json is not None:
            schema = json.loads(params.json) if isinstance(params.json, str) else params.json
            return self.rule(f"%json {json.dumps(closed(schema))}")
        if params.json_object:
            return self.rule('%json {"type": "object"}')
        if params.choice is not None:
            return self.rule(" | ".join(map(quoted, params.choice)))
        if params.regex is not None:
            return self.rule(self.terminal(f"/{_in_slashes(params.regex)}/"))
        return self.rule("%lark {\n" + grammar_of(params) + "\n}")  # EBNF becomes Lark


def quoted(text: str) -> str:
    """A text itself, in a grammar."""
    return json.dumps(text, ensure_ascii=False)


def _escaped(text: str) -> str:
    """A regex of this text only."""
    return re.sub(r"[][\\.^$|?*+(){}/]", r"\\\g<0>", text)


def _in_slashes(regex: str) -> str:
    escaped, found = False, ""
    for char in regex:
        found += "\\/" if char == "/" and not escaped else {"\n": "\\n"}.get(char, char)
        escaped = char == "\\" and not escaped
    return found
