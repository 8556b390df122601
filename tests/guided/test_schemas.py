"""Objects of JSON schemas have the properties that they list, and no others."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from pydantic import BaseModel

from jax_engine import StructuredOutputsParams
from jax_engine.guided.compiler import GuideCompiler
from jax_engine.guided.json_schema import closed
from jax_engine.tokenization.tokenizer import load_tokenizer
from tests.support.byte_tokenizer import VOCAB, save_byte_tokenizer
from tests.support.json_schemas import schemas

EOS = 256
INT = {"type": "integer"}
A: dict[str, Any] = {"properties": {"a": INT}}
SHUT = A | {"additionalProperties": False}


class Leg(BaseModel):
    length: int


class Animal(BaseModel):
    name: str
    legs: list[Leg]
    extra: dict[str, int] = {}
    tail: Leg | None = None


@pytest.fixture(scope="module")
def allows(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any, str], bool]:
    """Whether a text is a whole output of a schema."""
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    save_byte_tokenizer(folder)
    tokenizer = load_tokenizer(folder)
    compiler = GuideCompiler(tokenizer, VOCAB, {EOS})

    def of(schema: Any, text: str) -> bool:
        guide = compiler.guide(StructuredOutputsParams(json=schema))
        matcher, ids = guide._start.deep_copy(), tokenizer.encode(text)
        return bool(matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting())

    return of


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        (A, SHUT),
        ({"type": "object"}, {"type": "object"}),
        ({"properties": {}}, {"properties": {}}),
        ({"type": "array", "items": A}, {"type": "array", "items": SHUT}),
        ({"prefixItems": [A], "items": [A]}, {"prefixItems": [SHUT], "items": [SHUT]}),
        ({"anyOf": [A, INT]}, {"anyOf": [SHUT, INT]}),
        ({"$defs": {"x": A}, "$ref": "#/$defs/x"}, {"$defs": {"x": SHUT}, "$ref": "#/$defs/x"}),
        ({"allOf": [A], "title": "x"}, {"allOf": [SHUT], "title": "x"}),
        ({"additionalProperties": A}, {"additionalProperties": SHUT}),
        # It says what else there is, or asks for it.
        *((A | more, A | more) for more in (
            {"additionalProperties": True}, {"additionalProperties": INT},
            {"patternProperties": {"^b": INT}}, {"unevaluatedProperties": True},
            {"required": ["a", "b"]}, {"required": "a"}, {"required": [["a"]]},
        )),
        # Several look at one object.
        *((one, one) for one in (
            {"allOf": [A, {"properties": {"b": INT}}]}, A | {"allOf": [A]},
            A | {"if": A, "then": A}, A | {"not": A},
            {"$defs": {"x": A}} | A | {"$ref": "#/$defs/x"},
            A | {"anyOf": [{"properties": {"b": INT}}]}, A | {"dependentSchemas": {"a": A}},
            {"items": {"allOf": [A, A]}, "$defs": {"x": A}},
        )),
        # Names of properties are no keywords, and values no schemas.
        ({"properties": {"not": INT, "if": A}},
         {"properties": {"not": INT, "if": SHUT}, "additionalProperties": False}),
        ({"enum": [A], "default": A, "const": A}, {"enum": [A], "default": A, "const": A}),
        ({"properties": [A]}, {"properties": [A]}),
        (True, True),
    ],
    ids=lambda value: json.dumps(value)[:60],
)  # fmt: skip
def test_closed_schemas(schema: Any, wanted: Any) -> None:
    before = copy.deepcopy(schema)
    assert closed(schema) == wanted and schema == before
    assert closed(wanted) == wanted


def opened(schema: Any) -> Any:
    """A schema of objects that do not say whether they have other properties."""
    if isinstance(schema, list):
        return [opened(one) for one in schema]
    if not isinstance(schema, dict) or "enum" in schema or "const" in schema:
        return schema
    found = {name: opened(one) for name, one in schema.items() if name != "additionalProperties"}
    if isinstance(schema.get("properties"), dict):
        found["properties"] = {name: opened(one) for name, one in schema["properties"].items()}
    return found


def without_empty(schema: Any) -> Any:
    """The same, but that an object without properties may have any."""
    if isinstance(schema, list):
        return [without_empty(one) for one in schema]
    if not isinstance(schema, dict) or "enum" in schema or "const" in schema:
        return schema
    empty = schema.get("properties") == {}
    found = {
        name: without_empty(one)
        for name, one in schema.items()
        if not (empty and name == "additionalProperties")
    }
    if isinstance(schema.get("properties"), dict):
        found["properties"] = {n: without_empty(one) for n, one in schema["properties"].items()}
    return found


@given(schema=schemas)
@example(schema={"type": "object", "properties": {"enum": INT}, "required": [],
                 "additionalProperties": False})  # fmt: skip
def test_schemas_at_random_become_closed(schema: Any) -> None:
    assert closed(opened(schema)) == without_empty(schema)


@pytest.mark.parametrize(("text", "allowed"), [
    ('{"name": "cat", "legs": [{"length": 1}], "extra": {"x": 1, "y": 2}, "tail": null}', True),
    ('{"name": "cat", "legs": [], "tail": {"length": 3}}', True),
    ('{"name": "cat", "legs": []}', True),
    ('{"name": "cat", "legs": [], "wings": 2}', False),
    ('{"name": "cat", "legs": [{"length": 1, "width": 2}]}', False),
    ('{"name": "cat"}', False),
])  # fmt: skip
def test_a_class_of_pydantic(allows: Callable[[Any, str], bool], text: str, allowed: bool) -> None:
    schema = Animal.model_json_schema()
    assert allows(schema, text) == allows(json.dumps(schema), text) == allowed


def test_open_schemas_stay_open(allows: Callable[[Any, str], bool]) -> None:
    for schema in (A | {"type": "object", "additionalProperties": True}, {"type": "object"}):
        assert allows(schema, '{"a": 1, "b": "x"}')
    both = {"type": "object", "allOf": [A, {"properties": {"b": INT}}], "required": ["a", "b"]}
    assert allows(both, '{"a": 1, "b": 2}')
