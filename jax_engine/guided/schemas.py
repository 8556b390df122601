"""JSON schemas as clients mean them: an object that lists its properties has no others.

JSON Schema lets any others in, and a small model writes them. vLLM's grammars do not, and nor do
OpenAI's strict schemas. A schema says what it wants by `additionalProperties`.
"""

from typing import Any

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
    below = [schema[name] for name in (*_ONE, *_LISTS) if name in schema]
    named = [schema[name] for name in _NAMED if isinstance(schema.get(name), dict)]
    return any(map(_shares, below)) or any(_shares(list(one.values())) for one in named)
