"""Structural tags: free text in which tagged parts have grammars of their own.

    {"triggers": ["<f="], "structures": [{"begin": "<f=a>", "schema": {..}, "end": "</f>"}]}
    {"format": {"type": "triggered_tags", "triggers": ["<f="], "tags": [{"begin": "<f=a>",
        "content": {"type": "json_schema", "json_schema": {..}}, "end": "</f>"}]}}

Both say the same: text without `<f=`, and what follows on `<f=` is one of the tags. `_FORMATS`
lists the types of a format. A format that is free (`any_text`, `triggered_tags`) goes on up to the
end of the tag that it is in, or of the output, so nothing may follow on it.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jax_engine.checks import shown, suggestion
from jax_engine.guided.json_schema import check_ends, check_schema, closed
from jax_engine.guided.lark_grammar import Lark, in_slashes

MAX_DEPTH = 16  # of formats within formats
MAX_TAGS = 128  # of all formats together: each is open at each place of free text
Ends = tuple[str, ...]


class BadTag(ValueError):
    """A structural tag is wrong; the message begins with the place."""


def lark_of(tag: str | Mapping[str, Any], lark: Lark, grammar: Callable[[Lark, str], str]) -> str:
    """The rule of a structural tag.

    Args:
        tag: In either form, as JSON or read.
        grammar: Makes a rule of a grammar's text.

    Raises:
        BadTag: It is no structural tag, or a part of it has no grammar.
        InvalidRequestError: A schema is unsound.
    """
    if isinstance(tag, str):
        try:
            tag = json.loads(tag)
        except ValueError as error:
            raise BadTag(f"it is not JSON: {error}") from error
    if not isinstance(tag, Mapping):
        raise BadTag(f"it must be an object, got {shown(tag)}")
    kind = tag.get("type", "structural_tag")
    if kind != "structural_tag":
        raise BadTag(f"type must be 'structural_tag', got {shown(kind)}")
    writer = _Writer(lark, grammar)
    if "format" in tag:
        _check_keys(tag, "", ("type", "format"))
        return writer.rule(tag["format"], "format", None)
    _check_keys(tag, "", ("type", "structures", "triggers"))
    try:
        return writer.rule(_of_structures(tag), "", None)
    except BadTag as error:
        place = re.sub(r"^tags\b", "structures", str(error))
        raise BadTag(place.replace(".content.json_schema", ".schema", 1)) from error


def _of_structures(tag: Mapping[str, Any]) -> dict[str, Any]:
    """The format that the older form says."""
    tags = []
    for i, one in enumerate(_list(tag, "structures", "")):
        _check_keys(one, f"structures[{i}]", ("begin", "schema", "end"))
        content = {"type": "json_schema", "json_schema": one.get("schema", {})}
        tags.append({"begin": one.get("begin"), "content": content, "end": one.get("end", "")})
    return {"type": "triggered_tags", "tags": tags, "triggers": tag.get("triggers")}


class _Writer:
    """Writes the rules of formats."""

    def __init__(self, lark: Lark, grammar: Callable[[Lark, str], str]) -> None:
        self._lark, self._grammar = lark, grammar
        self._depth = self._num_tags = 0

    def rule(self, given: Any, where: str, ends: Ends | None) -> str:
        """The rule of a format and of the end behind it.

        Args:
            where: Its place, for errors.
            ends: What ends it, one of several texts; (): nothing, since it ends by itself; None:
                the end of the output.
        """
        if not isinstance(given, Mapping):
            raise BadTag(f"{where} must be an object with a type, got {shown(given)}")
        kind = given.get("type")
        if not isinstance(kind, str) or kind not in _FORMATS:
            known = ", ".join(_FORMATS)
            raise BadTag(f"{_at(where, 'type')} must be one of {known}, got {shown(kind)}")
        if self._depth >= MAX_DEPTH:
            raise BadTag(f"{where} must be nested at most {MAX_DEPTH} levels deep")
        self._depth += 1
        keys, write = _FORMATS[kind]
        _check_keys(given, where, ("type", *keys))
        found = write(self, given, where, ends)
        self._depth -= 1
        return self._lark.rule(found)

    def _ended(self, rule: str, ends: Ends | None) -> str:
        if not ends:
            return rule
        return f"{rule} ({' | '.join(map(self._lark.spelled, ends))})"

    def const_string(self, given: Mapping[str, Any], where: str, ends: Ends | None) -> str:
        return self._ended(self._lark.spelled(_text(given, "value", where)), ends)

    def json_schema(self, given: Mapping[str, Any], where: str, ends: Ends | None) -> str:
        place = _at(where, "json_schema")
        schema = given.get("json_schema")
        if isinstance(schema, str):
            try:
                schema = json.loads(schema)
            except ValueError as error:
                raise BadTag(f"{place} is not JSON: {error}") from error
        if not isinstance(schema, Mapping | bool):
            raise BadTag(f"{place} must be a JSON schema, got {shown(schema)}")
        check_schema(schema)
        schema = closed(schema)
        check_ends(schema)
        return self._ended(self._lark.rule(f"%json {json.dumps(schema)}"), ends)

    def regex(self, given: Mapping[str, Any], where: str, ends: Ends | None) -> str:
        pattern = in_slashes(_text(given, "pattern", where))
        return self._ended(self._lark.rule(self._lark.terminal(f"/{pattern}/")), ends)

    def grammar(self, given: Mapping[str, Any], where: str, ends: Ends | None) -> str:
        return self._ended(self._grammar(self._lark, _text(given, "grammar", where)), ends)

    def any_text(self, given: Mapping[str, Any], where: str, ends: Ends | None) -> str:
        _check_free(where, ends)
        return self._text_up_to(ends)

    def sequence(self, given: Mapping[str, Any], where: str, ends: Ends | None) -> str:
        elements = _list(given, "elements", where)
        last = len(elements) - 1
        places = [f"{_at(where, 'elements')}[{i}]" for i in range(len(elements))]
        return " ".join(
            self.rule(one, places[i], ends if i == last else ()) for i, one in enumerate(elements)
        )

    def either(self, given: Mapping[str, Any], where: str, ends: Ends | None) -> str:
        place = _at(where, "elements")
        elements = enumerate(_list(given, "elements", where))
        return " | ".join(self.rule(one, f"{place}[{i}]", ends) for i, one in elements)

    def tag(self, given: Mapping[str, Any], where: str, ends: Ends | None) -> str:
        begin = _text(given, "begin", where)
        return self._ended(f"{self._lark.spelled(begin)} {self._behind(given, where)}", ends)

    def triggered_tags(self, given: Mapping[str, Any], where: str, ends: Ends | None) -> str:
        _check_free(where, ends)
        tags, triggers = _list(given, "tags", where), _list(given, "triggers", where)
        for i, one in enumerate(triggers):
            if not isinstance(one, str) or not one:
                raise BadTag(f"{_at(where, 'triggers')}[{i}] must be a text, got {shown(one)}")
        behind: dict[str, list[str]] = {one: [] for one in triggers}
        for i, one in enumerate(tags):
            place = f"{_at(where, 'tags')}[{i}]"
            begin = _tag_begin(one, place)
            trigger = max((t for t in behind if begin.startswith(t)), key=len, default=None)
            if trigger is None:
                wanted = ", ".join(map(shown, triggers))
                raise BadTag(
                    f"{place}.begin must begin with one of the triggers ({wanted}), got "
                    f"{shown(begin)}"
                )
            rest = begin.removeprefix(trigger)
            behind[trigger].append(f"{self._lark.spelled(rest)} {self._behind(one, place)}")
        parts = [
            f"{self._lark.up_to(trigger)} ({' | '.join(bodies)})" if bodies else ""
            for trigger, bodies in behind.items()
        ]
        tagged = self._lark.rule(" | ".join(filter(None, parts)))
        rest = self._text_up_to(ends, without=triggers)
        if given.get("stop_after_first"):
            ended = self._ended(tagged, ends)
            return ended if given.get("at_least_one") else f"{ended} | {rest}"
        return f"{tagged}{'+' if given.get('at_least_one') else '*'} {rest}"

    def tags_with_separator(self, given: Mapping[str, Any], where: str, ends: Ends | None) -> str:
        place = _at(where, "tags")
        tags = [
            f"{self._lark.spelled(_tag_begin(one, f'{place}[{i}]'))} "
            f"{self._behind(one, f'{place}[{i}]')}"
            for i, one in enumerate(_list(given, "tags", where))
        ]
        one = self._lark.rule(" | ".join(tags))
        separator = self._lark.spelled(_text(given, "separator", where, may_be_empty=True))
        several = one if given.get("stop_after_first") else f"{one} ({separator} {one})*"
        whole = several if given.get("at_least_one") else f"({several})?"
        return self._ended(whole, ends)

    def _behind(self, given: Any, where: str) -> str:
        """What stands behind the beginning of a tag: content, and end."""
        self._num_tags += 1
        if self._num_tags > MAX_TAGS:
            raise BadTag(f"{where} is one too many: there may be {MAX_TAGS} tags")
        end = given.get("end", "")
        ends = [end] if isinstance(end, str) else end
        if not isinstance(ends, list) or not all(isinstance(one, str) for one in ends) or not ends:
            raise BadTag(f"{_at(where, 'end')} must be a text or several, got {shown(end)}")
        if "content" not in given:
            raise BadTag(f"{_at(where, 'content')} is missing")
        return self.rule(given["content"], _at(where, "content"), tuple(filter(None, ends)))

    def _text_up_to(self, ends: Ends | None, without: Sequence[str] = ()) -> str:
        """Free text, and one of the ends behind it."""
        if ends is None:
            return self._lark.without(*without) if without else self._lark.rule("/(.|\\n)*/")
        return f"({' | '.join(self._lark.up_to(end) for end in ends)})"


type _Write = Callable[[_Writer, Mapping[str, Any], str, Ends | None], str]
_TRIGGERED = ("triggers", "tags", "at_least_one", "stop_after_first")
_FORMATS: dict[Any, tuple[tuple[str, ...], _Write]] = {
    "const_string": (("value",), _Writer.const_string),
    "json_schema": (("json_schema",), _Writer.json_schema),
    "regex": (("pattern",), _Writer.regex),
    "grammar": (("grammar",), _Writer.grammar),
    "any_text": ((), _Writer.any_text),
    "sequence": (("elements",), _Writer.sequence),
    "or": (("elements",), _Writer.either),
    "tag": (("begin", "content", "end"), _Writer.tag),
    "triggered_tags": (_TRIGGERED, _Writer.triggered_tags),
    "tags_with_separator": (
        ("separator", "tags", "at_least_one", "stop_after_first"),
        _Writer.tags_with_separator,
    ),
}


def _at(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _check_free(where: str, ends: Ends | None) -> None:
    if ends == ():
        raise BadTag(
            f"{where or 'structures'} must be the last of its sequence, in a tag with an end or in "
            "none: its text would have no end"
        )


def _check_keys(given: Any, where: str, known: tuple[str, ...]) -> None:
    for name in _mapping(given, where):
        if name not in known:
            raise BadTag(f"{_at(where, str(name))} is not known{suggestion(str(name), known)}")


def _mapping(given: Any, where: str) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise BadTag(f"{where} must be an object, got {shown(given)}")
    return dict(given)


def _tag_begin(given: Any, where: str) -> str:
    kind = _mapping(given, where).get("type", "tag")
    if kind != "tag":
        raise BadTag(f"{where}.type must be 'tag', got {shown(kind)}")
    _check_keys(given, where, ("type", "begin", "content", "end"))
    return _text(given, "begin", where)


def _list(given: Mapping[str, Any], name: str, where: str) -> list[Any]:
    found = given.get(name)
    if not isinstance(found, list | tuple) or not found:
        raise BadTag(f"{_at(where, name)} must be a list that is not empty, got {shown(found)}")
    return list(found)


def _text(given: Mapping[str, Any], name: str, where: str, *, may_be_empty: bool = False) -> str:
    found = given.get(name)
    if not isinstance(found, str) or not (found or may_be_empty):
        raise BadTag(f"{_at(where, name)} must be a text, got {shown(found)}")
    return found
