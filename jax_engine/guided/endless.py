"""Refuses JSON schemas that no text fits, since each needs another of itself: it never ends.

A schema is a gate, which opens when enough of those that it needs are open: of the required
properties all, of alternatives one. Those open first that need nothing. What stays shut is endless.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import unquote

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
