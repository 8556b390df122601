"""JSON schemas as clients mean them, and those that are refused before they are compiled.

An object that lists its properties has no others. JSON Schema lets any others in, and a small model
writes them. vLLM's grammars do not, and nor do OpenAI's strict schemas. A schema says what it wants
by `additionalProperties`.

A schema that no text fits is refused: it needs another of itself, and never ends. A schema is a
gate, which opens when enough of those that it needs are open: of the required properties all, of
alternatives one. Those open first that need nothing. What stays shut is endless.

A schema that takes seconds to compile is refused too, since all clients wait meanwhile. The time
grows with the square of the properties that may be left out, and with the number that values must
be a multiple of: an automaton has a state for each remainder.
"""

import json
import math
import re
from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import unquote

from jax_engine.checks import shown
from jax_engine.errors import InvalidRequestError

Types = frozenset[str]
OBJECT, ARRAY, SCALAR = "object", "array", "scalar"
ANY: Types = frozenset({OBJECT, ARRAY, SCALAR})


def check_ends(schema: Any) -> None:
    """
    Raises:
        InvalidRequestError: no finite text fits. What is not understood is taken to end.
    """
    found = _Gates(schema).endless()
    if found is not None:
        inner, outer = found
        raise InvalidRequestError(
            f"structured_outputs must be a schema that a text can fit, but {inner} needs another "
            f"{outer} in it, and so on without end: do not require it, or allow null beside it"
        )


class _Gate(NamedTuple):
    """A schema, or one of its parts.

    Attributes:
        place: the schema's, as a JSON pointer.
        children: numbers of gates.
        need: how many of them must be open.
    """

    place: str
    children: list[int]
    need: int


class _Gates:
    """The gates of all schemas that a root needs, itself first."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._gates: list[_Gate] = []
        self._numbers: dict[tuple[int, Types], int] = {}
        self._todo: list[tuple[Any, Types]] = []
        self._schema(root, ANY, "#")
        while self._todo:
            schema, types = self._todo.pop()
            number = self._numbers[id(schema), types]
            place = self._gates[number].place
            children = list(self._parts(schema, types & _types(schema), place))
            self._gates[number] = _Gate(place, children, len(children))

    def endless(self) -> tuple[str, str] | None:
        """If the root's gate stays shut: a place, and that which it needs again."""
        shut = self._shut()
        if 0 not in shut:
            return None
        path, here = [0], 0
        while True:
            here = next(one for one in self._gates[here].children if one in shut)
            if here in path:
                return self._gates[path[-1]].place, self._gates[here].place
            path.append(here)

    def _shut(self) -> set[int]:
        missing = [gate.need for gate in self._gates]
        parents: list[list[int]] = [[] for _ in self._gates]
        for number, gate in enumerate(self._gates):
            for child in gate.children:
                parents[child].append(number)
        opened = [number for number, count in enumerate(missing) if count == 0]
        shut = set(range(len(missing)))
        while opened:
            number = opened.pop()
            shut.discard(number)
            for parent in parents[number]:
                missing[parent] -= 1
                if missing[parent] == 0:
                    opened.append(parent)
        return shut

    def _schema(self, schema: Any, types: Types, place: str) -> int:
        key = id(schema), types
        if key not in self._numbers:
            self._numbers[key] = self._some(1, [], place)
            self._todo.append((schema, types))
        return self._numbers[key]

    def _some(self, need: int, children: list[int], place: str) -> int:
        self._gates.append(_Gate(place, children, need))
        return len(self._gates) - 1

    def _each(self, schemas: list[Any], types: Types, place: str) -> list[int]:
        return [self._schema(one, types, f"{place}/{i}") for i, one in enumerate(schemas)]

    def _parts(self, schema: Any, types: Types, place: str) -> Iterator[int]:
        """What must all be open."""
        if not isinstance(schema, dict) or "enum" in schema or "const" in schema:
            return
        target = schema.get("$ref")
        if isinstance(target, str):
            found = self._target(target)
            if found is not None:
                yield self._schema(found, types, target)
        yield from self._each(_list(schema, "allOf"), types, f"{place}/allOf")
        for name in ("anyOf", "oneOf"):
            ways = [one for one in _list(schema, name) if one is not False]
            if ways:
                yield self._some(1, self._each(ways, types, f"{place}/{name}"), place)
        if types and SCALAR not in types:  # without any the schema has another fault
            kinds = {OBJECT: self._properties, ARRAY: self._items}
            needs = [list(kinds[one](schema, place)) for one in sorted(types)]
            yield self._some(1, [self._some(len(one), one, place) for one in needs], place)

    def _properties(self, schema: dict[str, Any], place: str) -> Iterator[int]:
        """Those that an object must have."""
        listed = self._named(_dict(schema, "properties"), f"{place}/properties")
        patterns = self._named(_dict(schema, "patternProperties"), f"{place}/patternProperties")
        others, unlisted = schema.get("additionalProperties", True), list(patterns.values())
        if others is not False:
            unlisted.append(self._schema(others, ANY, f"{place}/additionalProperties"))
        for name in _list(schema, "required"):
            if isinstance(name, str) and name in listed:
                yield listed[name]
            elif unlisted:  # a client's pattern may take for ever: which one fits is not asked
                yield self._some(1, unlisted, place)
        least = schema.get("minProperties", 0)
        if isinstance(least, int) and least > 0 and (listed or unlisted):
            known = self._some(max(1, min(least, len(listed))), list(listed.values()), place)
            yield self._some(1, [*unlisted, known], place)

    def _items(self, schema: dict[str, Any], place: str) -> Iterator[int]:
        """Those that an array must have."""
        least = schema.get("minItems")
        if not isinstance(least, int) or least < 1:
            return
        name = "prefixItems" if _list(schema, "prefixItems") else "items"
        first = _list(schema, name)
        yield from self._each(first[:least], ANY, f"{place}/{name}")
        rest = "additionalItems" if _list(schema, "items") else "items"
        if least > len(first) and rest in schema:
            yield self._schema(schema[rest], ANY, f"{place}/{rest}")

    def _named(self, schemas: dict[str, Any], place: str) -> dict[str, int]:
        return {
            name: self._schema(one, ANY, f"{place}/{name.replace('~', '~0').replace('/', '~1')}")
            for name, one in schemas.items()
        }

    def _target(self, reference: str) -> Any:
        """The schema that a reference names; None: it is not known here."""
        root = self._root
        own = root.get("$id") if isinstance(root, dict) else None
        base, _, pointer = reference.partition("#")
        if base and base != (own.rstrip("#") if isinstance(own, str) else None):
            return None
        if pointer[:1] not in ("", "/"):
            return self._anchors.get(pointer)
        found = root
        for word in unquote(pointer).split("/")[1:]:
            name = word.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name.isdecimal():
                found = dict(enumerate(found)).get(int(name))
            else:
                found = found.get(name) if isinstance(found, dict) else None
        return found

    @cached_property
    def _anchors(self) -> dict[str, Any]:
        found, todo = {}, [self._root]
        while todo:
            one = todo.pop()
            if isinstance(one, dict):
                if isinstance(one.get("$anchor"), str):
                    found[one["$anchor"]] = one
                todo += one.values()
            elif isinstance(one, list):
                todo += one
        return found


def _types(schema: Any) -> Types:
    """Which kinds of values a schema's `type` lets in."""
    named = schema.get("type", []) if isinstance(schema, dict) else []
    names = named if isinstance(named, list) else [named]
    return frozenset(one if one in (OBJECT, ARRAY) else SCALAR for one in names) or ANY


def _list(schema: dict[str, Any], name: str) -> list[Any]:
    found = schema.get(name)
    return found if isinstance(found, list) else []


def _dict(schema: dict[str, Any], name: str) -> dict[str, Any]:
    found = schema.get(name)
    return found if isinstance(found, dict) else {}


MAX_PROPERTIES = 2000  # in all of a schema: half a second
MAX_MULTIPLE = 100_000  # without decimal places: a quarter of a second
_JSON_IN_LARK = re.compile(r"%json\b\s*")


def check_schema(schema: Any) -> None:
    """
    Raises:
        InvalidRequestError: The schema has too many properties, or too large a `multipleOf`.
    """
    properties, steps = 0, list[int | float]()
    for one in _objects(schema):
        named = [one.get(name) for name in ("properties", "patternProperties")]
        properties += sum(len(names) for names in named if isinstance(names, dict))
        step = one.get("multipleOf")
        if isinstance(step, int) or (isinstance(step, float) and math.isfinite(step)):
            steps.append(step)
    if properties > MAX_PROPERTIES:
        raise InvalidRequestError(
            f"structured_outputs must hold at most {MAX_PROPERTIES} properties, got {properties}: "
            "use fewer, or additionalProperties"
        )
    # Those that hold of one value together have the states of their least common multiple.
    states = math.lcm(*{_without_places(one) for one in steps if one > 0})
    if states > MAX_MULTIPLE:
        raise InvalidRequestError(
            f"structured_outputs must hold multipleOf of at most {MAX_MULTIPLE} (all of a schema "
            f"together, without decimal places), got {shown(steps)}: check the number afterwards"
        )


def _without_places(step: int | float) -> int:
    return step if isinstance(step, int) else Fraction(str(step)).numerator


def check_schemas_of(grammar: str) -> None:
    """The same of the schemas within a Lark grammar (`%json {..}`), which must also end."""
    for found in _JSON_IN_LARK.finditer(grammar):
        try:
            schema, _ = json.JSONDecoder().raw_decode(grammar, found.end())
        except (ValueError, RecursionError):
            continue  # who compiles it says what is wrong
        check_schema(schema)
        check_ends(schema)


def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    todo = [schema]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            yield one
            todo += one.values()
        elif isinstance(one, list):
            todo += one


# Keywords that say themselves which other properties an object has.
_OPEN = frozenset({
    "additionalProperties", "patternProperties", "unevaluatedProperties", "propertyNames",
})  # fmt: skip
# Where subschemas are: of parts of a value, or alternatives for all of it.
_ONE = ("items", "additionalItems", "additionalProperties", "contains", "unevaluatedItems")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_NAMED = ("properties", "patternProperties", "$defs", "definitions")
# Keywords whose subschemas look at the same object: closed, they would contradict each other.
_SHARED = ("allOf", "not", "if", "dependentSchemas", "$dynamicRef")
_BESIDE_PROPERTIES = ("anyOf", "oneOf", "$ref")


def closed(schema: Any) -> Any:
    """A schema whose objects have no properties but those that they list.

    Not those that another keyword opens, or that require a property that they do not list. A schema
    that combines several for one object (`allOf`, `if`, ..) stays as it is.
    """
    return schema if _shares(schema) else _closed(schema)


def _closed(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    found = dict(schema)
    for name in _ONE:
        if isinstance(found.get(name), dict):
            found[name] = _closed(found[name])
    for name in _LISTS:
        if isinstance(found.get(name), list):
            found[name] = [_closed(one) for one in found[name]]
    for name in _NAMED:
        if isinstance(found.get(name), dict):
            found[name] = {key: _closed(one) for key, one in found[name].items()}
    listed, required = found.get("properties"), found.get("required", [])
    if not isinstance(listed, dict) or not listed or not isinstance(required, list):
        return found
    is_whole = all(isinstance(one, str) and one in listed for one in required)
    if is_whole and not _OPEN & found.keys():
        found["additionalProperties"] = False
    return found


def _shares(schema: Any) -> bool:
    """Whether several schemas look at one object, anywhere within."""
    if isinstance(schema, list):
        return any(map(_shares, schema))
    if not isinstance(schema, dict):
        return False
    many = schema.get("allOf")
    alone = isinstance(many, list) and len(many) == 1 and "properties" not in schema
    if any(name in schema and not (name == "allOf" and alone) for name in _SHARED):
        return True
    if "properties" in schema and any(name in schema for name in _BESIDE_PROPERTIES):
        return True
    below = [schema[name] for name in {*_ONE, *_LISTS} if name in schema]  # `items` is in both
    named = [schema[name] for name in _NAMED if isinstance(schema.get(name), dict)]
    return any(map(_shares, below)) or any(_shares(list(one.values())) for one in named)
