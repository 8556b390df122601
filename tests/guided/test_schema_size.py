"""Grammars that take seconds to compile are refused by their size, whoever sends them how."""

import json
from pathlib import Path
from typing import Any

import pytest

from jax_engine import InvalidRequestError, StructuredOutputsParams
from jax_engine.guided import compiler
from jax_engine.guided.compiler import GuideCompiler, check_size
from jax_engine.guided.json_schema import (
    MAX_MULTIPLE,
    MAX_PROPERTIES,
    check_schema,
    check_schemas_of,
    closed,
)
from jax_engine.tokenization.tokenizer import load_tokenizer
from tests.support.byte_tokenizer import VOCAB, save_byte_tokenizer


def names(count: int, start: int = 0) -> dict[str, Any]:
    return {f"p{i}": {"type": "null"} for i in range(start, start + count)}


WIDE: dict[str, dict[str, Any]] = {
    "one object": {"properties": names(MAX_PROPERTIES + 1)},
    "patterns": {"patternProperties": names(MAX_PROPERTIES + 1)},
    "two objects": {
        "anyOf": [{"properties": names(MAX_PROPERTIES)}, {"$ref": "#/$defs/a"}],
        "$defs": {"a": {"properties": names(1)}},
    },
}
STEPS: dict[str, dict[str, Any]] = {
    "one": {"multipleOf": MAX_MULTIPLE + 1},
    "beyond all floats": {"multipleOf": 10**400},
    "places": {"multipleOf": 1000.003},
    "together": {"allOf": [{"multipleOf": 317}, {"multipleOf": 331}]},
}


@pytest.mark.parametrize("name", WIDE)
def test_properties_have_a_limit(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="at most 2000 properties, got 2001"):
        check_schema(WIDE[name])
    check_schema({"properties": names(MAX_PROPERTIES)})
    check_schema(True)


@pytest.mark.parametrize("name", STEPS)
def test_multiples_have_a_limit(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="multipleOf of at most 100000"):
        check_schema(STEPS[name])


@pytest.mark.parametrize("step", [MAX_MULTIPLE, 0.01, 1e-5, 99999.0, 2.5, "x", 0, -3, 1e400])
def test_multiples_that_are_left_to_the_compiler(step: Any) -> None:
    check_schema({"multipleOf": step})


class Counted(dict[str, Any]):
    """A schema that counts how often its references are asked for."""

    asked = 0

    def __contains__(self, name: object) -> bool:
        self.asked += name == "$dynamicRef"
        assert self.asked < 10, "nested schemas are looked at again and again"
        return super().__contains__(name)


@pytest.mark.parametrize("keyword", ["items", "additionalProperties", "anyOf", "prefixItems"])
def test_each_schema_is_looked_at_once(keyword: str) -> None:
    """Twice at each level would be for ever: `paged-conformance` found it in nested arrays."""
    innermost = schema = Counted(type="object", properties={"a": {}})
    for _ in range(60):
        schema = Counted(
            {keyword: schema if keyword[0] in "ia" and keyword != "anyOf" else [schema]}
        )
    closed(schema)
    assert innermost.asked == 1


def test_schemas_within_a_grammar_count() -> None:
    for schema in (*WIDE.values(), *STEPS.values()):
        text = f'start: "a" one\none: %json {json.dumps(schema)}\n'
        with pytest.raises(InvalidRequestError, match="at most"):
            check_schemas_of(text)
    check_schemas_of('start: %json {"multipleOf": 3} %json {broken')


def test_what_is_refused_is_not_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_byte_tokenizer(tmp_path)
    made = GuideCompiler(load_tokenizer(tmp_path), VOCAB, {256})
    monkeypatch.setattr(made, "_compile", None)
    wide = WIDE["one object"]
    for params in (
        StructuredOutputsParams(json=wide),
        StructuredOutputsParams(json=json.dumps(wide)),
        StructuredOutputsParams(grammar=f"start: %json {json.dumps(wide)}"),
    ):
        with pytest.raises(InvalidRequestError, match=r"^structured_outputs must hold at most"):
            made.guide(params)


def test_a_regex_has_so_much_fuel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken, for what it begins with, or refused: both are a question of fuel, not time."""
    save_byte_tokenizer(tmp_path)
    made = GuideCompiler(load_tokenizer(tmp_path), VOCAB, {256})
    made.guide(StructuredOutputsParams(regex="(a{1000}){1000}"))
    many = [f"w{i}" for i in range(60_000)]
    with pytest.raises(InvalidRequestError, match="its regexes or choices are too large: use few"):
        made.guide(StructuredOutputsParams(choice=many))
    monkeypatch.setattr(compiler, "LEXER_FUEL", 5)
    with pytest.raises(InvalidRequestError, match="its regexes or choices are too large"):
        made.guide(StructuredOutputsParams(regex="ab*c"))


def test_a_client_s_grammar_is_refused_before_its_size_is_asked() -> None:
    """Which the server asks on its event loop, and which compiles it."""
    grammar = f"start: %json {json.dumps(STEPS['one'])}"
    with pytest.raises(InvalidRequestError, match="multipleOf of at most 100000"):
        check_size(StructuredOutputsParams(grammar=grammar))
