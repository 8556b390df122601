"""Is a JSON value what a schema asks for? As much of JSON Schema as engine_trace.schema.json uses.

The page has no other validator. A test holds it to the `jsonschema` package.

>>> list(problems({"a": -1}, {"type": "object", "properties": {"a": {"minimum": 0}}}))
['a is -1, and at least 0 is allowed']
>>> list(problems([1], {"type": "object"}))
['the trace must be an object']
"""

from collections.abc import Iterator, Mapping
from typing import Any

KNOWN = {
    "$schema", "$defs", "$ref", "title", "description", "type", "required", "properties",
    "additionalProperties", "items", "minimum", "maximum", "minItems", "maxItems",
}  # fmt: skip
"""Words of a schema that are understood."""
TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
}

type Schema = Mapping[str, Any]


def problems(value: Any, schema: Schema, at: str = "", root: Schema | None = None) -> Iterator[str]:
    """What is wrong with a value, each with the place where it is."""
    root = schema if root is None else root
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        schema = {**root["$defs"][name], **{k: v for k, v in schema.items() if k != "$ref"}}
    kind = schema.get("type")
    if kind is not None and not _is(value, kind):
        yield f"{at or 'the trace'} must be {'an' if kind[0] in 'aeio' else 'a'} {kind}"
        return
    if isinstance(value, dict):
        yield from _of_object(value, schema, at, root)
    elif isinstance(value, list):
        yield from _of_array(value, schema, at, root)
    elif isinstance(value, int) and not isinstance(value, bool):
        if value < schema.get("minimum", value):
            yield f"{at} is {value}, and at least {schema['minimum']} is allowed"
        if value > schema.get("maximum", value):
            yield f"{at} is {value}, and at most {schema['maximum']} is allowed"


def _is(value: Any, kind: str) -> bool:
    if kind == "integer" and isinstance(value, bool):
        return False
    return isinstance(value, TYPES[kind])


def _of_object(value: Mapping[str, Any], schema: Schema, at: str, root: Schema) -> Iterator[str]:
    known = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{at or 'the trace'} lacks {name!r}"
    for name, one in value.items():
        inside = f"{at}.{name}" if at else name
        if name in known:
            yield from problems(one, known[name], inside, root)
        elif others is False:
            yield f"{inside} is not known; known are {', '.join(known)}"
        elif isinstance(others, Mapping):
            yield from problems(one, others, inside, root)


def _of_array(value: list[Any], schema: Schema, at: str, root: Schema) -> Iterator[str]:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        yield f"{at} has {len(value)} items, and {schema['minItems']} are asked for"
    for i, one in enumerate(value):
        yield from problems(one, schema.get("items", {}), f"{at}[{i}]", root)
