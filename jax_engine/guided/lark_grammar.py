"""Writes a grammar in Lark, as llguidance reads it."""

import json
import re
from typing import Any

from jax_engine.guided.json_schema import closed
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
        tokenizer: knows which markers are tokens of their own; None: none is.
        lenient: Keywords of tools' schemas that no grammar can hold (uniqueItems, not, ..) do not
            constrain. Otherwise they make the grammar invalid.
    """

    def __init__(self, tokenizer: Tokenizer | None, *, lenient: bool = False) -> None:
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
        if self._tokenizer is None:
            return None
        index = self._tokenizer.backend.token_to_id(marker)
        added = self._tokenizer.backend.get_added_tokens_decoder()
        return f"<[{index}]>" if index is not None and index in added else None

    def marker(self, marker: str) -> str:
        """A marker, as the model writes it."""
        return self.token(marker) or quoted(marker)

    def spelled(self, text: str) -> str:
        """A text, in which those tokens stand that have a name of their own."""
        before, marker, behind = self._parted(text)
        if not marker:
            return quoted(text) if text else ""
        first = quoted(before) if before else ""
        return f"{first} {self.token(marker)} {self.spelled(behind)}".strip()

    def _parted(self, text: str) -> tuple[str, str, str]:
        """What stands before the first marker that is a token, the marker, and what is behind."""
        if self._tokenizer is None:
            return text, "", ""
        added = self._tokenizer.backend.get_added_tokens_decoder().values()
        found = [(text.find(name), -len(name), name) for name in map(_content, added) if name]
        at, _, name = min([one for one in found if one[0] >= 0], default=(len(text), 0, ""))
        return text[:at], name, text[at + len(name) :]

    def up_to(self, marker: str) -> str:
        """Any text without a marker, and then the marker."""
        before, token, behind = self._parted(marker)
        if not token:
            return self.rule(f"/(.|\\n)*{_escaped(marker)}/", "[lazy]")
        others = f"~/(.|\\n)*{_escaped(token)}(.|\\n)*/"
        text = self.rule(self.terminal(f"/(.|\\n)*{_escaped(before)}/ & {others}"))
        return f"{text} {self.token(token)} {self.spelled(behind)}".strip()

    def without(self, *markers: str) -> str:
        """Any text without these markers."""
        found = "|".join(map(_escaped, markers))
        return self.rule(self.terminal(f"/(.|\\n)*/ & ~/(.|\\n)*({found})(.|\\n)*/"))


def _content(token: Any) -> str:
    return str(token.content)


def quoted(text: str) -> str:
    """A text itself, in a grammar."""
    return json.dumps(text, ensure_ascii=False)


def _escaped(text: str) -> str:
    """A regex of this text only."""
    return re.sub(r"[][\\.^$|?*+(){}/]", r"\\\g<0>", text)


def in_slashes(regex: str) -> str:
    escaped, found = False, ""
    for char in regex:
        found += "\\/" if char == "/" and not escaped else {"\n": "\\n"}.get(char, char)
        escaped = char == "\\" and not escaped
    return found
