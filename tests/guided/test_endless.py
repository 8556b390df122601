"""JSON schemas that need another of themselves, and so on without end, are refused with words."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine import InvalidRequestError
from jax_engine.guided.compiler import grammar_of
from jax_engine.guided.json_schema import check_ends
from jax_engine.sampling_params import StructuredOutputsParams
from tests.guided.test_schemas import allows  # noqa: F401  a fixture

SELF: dict[str, Any] = {"$ref": "#"}
NULL: dict[str, Any] = {"type": "null"}
A, B = {"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}


def needs(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def either(*schemas: Any) -> dict[str, Any]:
    return {"anyOf": list(schemas)}


# Each with the place that needs another, and which.
ENDLESS: list[tuple[dict[str, Any], str, str]] = [
    (needs(next=SELF), "#/properties/next", "#"),
    (needs(value=NULL, next=SELF), "#/properties/next", "#"),
    (needs(next=SELF | {"description": "x"}), "#/properties/next", "#"),
    (A | {"$defs": {"a": needs(b=B), "b": needs(a=A)}}, "#/$defs/b/properties/a", "#/$defs/a"),
    ({"type": "array", "items": SELF, "minItems": 1}, "#/items", "#"),
    ({"type": "array", "items": NULL, "prefixItems": [NULL, SELF], "minItems": 2},
     "#/prefixItems/1", "#"),
    ({"type": "array", "items": [NULL], "additionalItems": SELF, "minItems": 2},
     "#/additionalItems", "#"),
    (either(needs(a=SELF), {"type": "array", "items": SELF, "minItems": 2}),
     "#/anyOf/0/properties/a", "#"),
    ({"oneOf": [False, needs(a=SELF)]}, "#/oneOf/0/properties/a", "#"),
    ({"allOf": [NULL | needs(), needs(a=SELF)]}, "#/allOf/1/properties/a", "#"),
    ({"type": "object", "allOf": [{"properties": {"a": SELF}, "required": ["a"]}]},
     "#/allOf/0/properties/a", "#"),
    (needs(a=SELF) | {"type": ["object", "array"], "items": SELF, "minItems": 1}, "#/items", "#"),
    ({"type": "object", "additionalProperties": SELF, "required": ["x"]},
     "#/additionalProperties", "#"),
    ({"type": "object", "patternProperties": {"^x": SELF}, "additionalProperties": False,
      "required": ["x1"]}, "#/patternProperties/^x", "#"),
    ({"type": "object", "additionalProperties": SELF, "minProperties": 1},
     "#/additionalProperties", "#"),
    ({"type": "object", "properties": {"a": NULL, "b": SELF}, "minProperties": 2,
      "additionalProperties": False}, "#/properties/b", "#"),
    (needs(a=needs(b={"$ref": "#/properties/a"})), "#/properties/a/properties/b", "#/properties/a"),
    ({"$ref": "#x", "$defs": {"a": needs(b={"$ref": "#x"}) | {"$anchor": "x"}}},
     "#x/properties/b", "#x"),
    (needs(a={"$ref": "http://x.y/z"}) | {"$id": "http://x.y/z"}, "#/properties/a", "#"),
    (A | {"definitions": {"a/b": needs(c={"$ref": "#/definitions/a~1b"})},
          "$ref": "#/definitions/a~1b"},
     "#/definitions/a~1b/properties/c", "#/definitions/a~1b"),
    (SELF, "#", "#"),
]  # fmt: skip
# Each with a text that fits.
ENDING: list[tuple[dict[str, Any], str]] = [
    ({"type": "object", "properties": {"next": SELF}}, "{}"),
    (needs(next=either(SELF, NULL)), '{"next": {"next": null}}'),
    (needs(next=SELF) | {"type": ["object", "null"]}, '{"next": null}'),
    (either(needs(a=SELF), {"type": "array", "items": SELF}), '{"a": []}'),
    (A | {"$defs": {"a": needs(b=B), "b": either(needs(a=A), NULL)}}, '{"b": {"a": {"b": null}}}'),
    ({"type": "array", "items": SELF}, "[[], []]"),
    ({"type": "array", "items": SELF, "minItems": 0}, "[]"),
    ({"type": "array", "items": SELF, "prefixItems": [NULL], "minItems": 1}, "[null]"),
    (NULL | {"$defs": {"a": needs(b=A)}}, "null"),
    (needs(a=A) | {"$defs": {"a": {"enum": [1], "properties": {"b": A}, "required": ["b"]}}},
     '{"a": 1}'),
    (needs(a=A) | {"$defs": {"a": {"const": 2, "properties": {"b": A}, "required": ["b"]}}},
     '{"a": 2}'),
    ({"type": "object", "properties": {"a": NULL, "b": SELF}, "required": ["a"]}, '{"a": null}'),
    ({"type": "object", "additionalProperties": SELF}, '{"a": {"b": {}}}'),
    (needs(a=SELF, b=NULL) | {"required": ["b"]}, '{"a": {"b": null}, "b": null}'),
]  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "place", "again"), ENDLESS, ids=lambda one: json.dumps(one)[:50]
)
def test_an_endless_schema(schema: Any, place: str, again: str) -> None:
    for params in (
        StructuredOutputsParams(json=schema),
        StructuredOutputsParams(json=json.dumps(schema)),
        StructuredOutputsParams(grammar=f'start: "a" one\none: %json {json.dumps(schema)}\n'),
    ):
        with pytest.raises(InvalidRequestError) as error:
            grammar_of(params)
        assert f"but {place} needs another {again} in it, and so on" in str(error.value)


@pytest.mark.parametrize(("schema", "text"), ENDING, ids=lambda one: json.dumps(one)[:50])
def test_a_schema_that_ends(
    allows: Callable[[Any, str], bool],  # noqa: F811
    schema: Any,
    text: str,
) -> None:
    assert allows(schema, text)


@pytest.mark.parametrize("schema", [
    True, False, [], 5, None, {"$ref": 5}, {"$ref": "#/nowhere"}, {"$ref": "http://far.away"},
    {"type": "object", "properties": [SELF], "required": "a", "minProperties": "x"},
    {"type": "array", "items": SELF, "minItems": "1"}, {"type": "array", "minItems": 10**30},
    {"type": [], "allOf": {}, "anyOf": []}, {"$ref": "#/allOf/7", "allOf": [NULL]},
    {"type": "object", "minProperties": 3}, {"type": {"a": 1}}, {"anyOf": [False]},
    {"type": "object", "patternProperties": {"(a+)+$": SELF, "(": SELF}, "required": ["a" * 99]},
], ids=str)  # fmt: skip
def test_what_is_not_understood_is_left_to_the_compiler(schema: Any) -> None:
    check_ends(schema)


@pytest.mark.slow
def test_many_schemas_take_no_time() -> None:
    """A chain in either order, whose last needs the first, or ends."""
    count = 3000
    for order in (range(count), range(count - 1, -1, -1)):
        links = {str(i): needs(x={"$ref": f"#/$defs/{i + 1}"}) for i in order}
        schema = {"$ref": "#/$defs/0", "$defs": links | {str(count): NULL}}
        check_ends(schema)
        schema["$defs"][str(count)] = {"$ref": "#/$defs/0"}
        with pytest.raises(InvalidRequestError, match="needs another #/"):
            check_ends(schema)


NAMES = ["a", "b", "c"]
_part = st.recursive(
    st.sampled_from([NULL, *({"$ref": f"#/$defs/{name}"} for name in NAMES)]),
    lambda inner: st.one_of(
        st.builds(lambda one, two: needs(x=one, y=two), inner, inner),
        st.builds(lambda one: {"type": "object", "properties": {"x": one}}, inner),
        st.builds(either, inner, inner),
        st.builds(lambda one, least: {"type": "array", "items": one, "minItems": least},
                  inner, st.integers(0, 2)),
        st.builds(lambda one, two: {"allOf": [one, two]}, inner, inner),
    ),
    max_leaves=5,
)  # fmt: skip


def has_text(schema: dict[str, Any], defs: dict[str, Any], depth: int) -> bool:
    """Whether a text fits without following more references, one in another, than `depth`."""

    def of(one: dict[str, Any]) -> bool:
        return has_text(one, defs, depth)

    if "$ref" in schema:
        return depth > 0 and has_text(defs[schema["$ref"][-1]], defs, depth - 1)
    if "anyOf" in schema:
        return any(map(of, schema["anyOf"]))
    if "allOf" in schema:
        return all(map(of, schema["allOf"]))
    if schema["type"] == "array":
        return schema["minItems"] == 0 or of(schema["items"])
    return all(of(schema["properties"][name]) for name in schema.get("required", []))


@given(st.fixed_dictionaries(dict.fromkeys(NAMES, _part)), _part)
def test_schemas_at_random(defs: dict[str, Any], root: dict[str, Any]) -> None:
    schema = root | {"$defs": defs}
    if has_text(root, defs, len(NAMES)):
        check_ends(schema)
        return
    with pytest.raises(InvalidRequestError, match="without end"):
        check_ends(schema)
