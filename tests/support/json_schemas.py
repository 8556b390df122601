"""Small JSON schemas at random, and whether a value conforms to one."""

import string
from typing import Any

from hypothesis import strategies as st

NAMES = st.text(string.ascii_letters + ' _"\\é', min_size=1, max_size=4)
PRIMITIVES = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
}


@st.composite
def leaves(draw: st.DrawFn) -> dict[str, Any]:
    """Schemas of values that are not made of others, short enough for a random model to end."""
    low = draw(st.integers(-20, 20))
    return draw(
        st.sampled_from(
            [
                {"type": "null"},
                {"type": "boolean"},
                {"type": "integer", "minimum": low, "maximum": low + draw(st.integers(0, 30))},
                {"type": "string", "maxLength": draw(st.integers(0, 4))},
                {"enum": draw(st.lists(st.none() | st.integers(-9, 9) | NAMES, min_size=1))},
                {"const": draw(NAMES)},
            ]
        )
    )


def _containers(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    arrays = st.builds(
        lambda items, low, more: {
            "type": "array", "items": items, "minItems": low, "maxItems": low + more,
        },
        inner, st.integers(0, 2), st.integers(0, 1),
    )  # fmt: skip
    objects = st.dictionaries(NAMES, inner, max_size=3).flatmap(
        lambda properties: (
            st.lists(st.sampled_from(sorted(properties)), unique=True).map(
                lambda required: _object(properties, required)
            )
            if properties
            else st.just(_object({}, []))
        )
    )
    either = st.lists(inner, min_size=1, max_size=3).map(lambda some: {"anyOf": some})
    return arrays | objects | either


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


schemas = st.recursive(leaves(), _containers, max_leaves=5)


def conforms(value: Any, schema: dict[str, Any]) -> bool:
    """For the schemas above."""
    if "anyOf" in schema:
        return any(conforms(value, one) for one in schema["anyOf"])
    if "const" in schema:
        return _same(value, schema["const"])
    if "enum" in schema:
        return any(_same(value, one) for one in schema["enum"])
    kind = schema["type"]
    if kind == "array":
        return (
            isinstance(value, list)
            and schema["minItems"] <= len(value) <= schema["maxItems"]
            and all(conforms(one, schema["items"]) for one in value)
        )
    if kind == "object":
        known = schema["properties"]
        return (
            isinstance(value, dict)
            and set(schema["required"]) <= set(value) <= set(known)
            and all(conforms(one, known[name]) for name, one in value.items())
        )
    if not PRIMITIVES[kind](value):
        return False
    if kind == "string":
        return len(value) <= schema["maxLength"]
    return kind != "integer" or schema["minimum"] <= value <= schema["maximum"]


def _same(value: Any, wanted: Any) -> bool:
    return type(value) is type(wanted) and value == wanted
