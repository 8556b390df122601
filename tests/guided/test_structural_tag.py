"""Structural tags in both forms: what they allow, and what is refused, by its place."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken

from jax_engine import InvalidRequestError, StructuredOutputsParams
from jax_engine.guided.compiler import GuideCompiler, check_size
from jax_engine.guided.structural_tag import MAX_DEPTH, MAX_TAGS
from jax_engine.tokenization.tokenizer import Tokenizer, load_tokenizer
from tests.guided.test_compiler import EOS, PADDED, walk
from tests.support.byte_tokenizer import save_byte_tokenizer
from tests.support.json_schemas import conforms

INTEGER = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
BOOLEAN = {"type": "boolean"}
JSON: dict[str, Any] = {"type": "json_schema", "json_schema": INTEGER}
F = {"begin": "<f=a>", "content": JSON, "end": "</f>"}
G = {"begin": "<g>", "content": {"type": "json_schema", "json_schema": BOOLEAN}, "end": "</g>"}
OLDER = {
    "type": "structural_tag",
    "triggers": ["<f=", "<g"],
    "structures": [
        {"begin": "<f=a>", "schema": INTEGER, "end": "</f>"},
        {"begin": "<g>", "schema": BOOLEAN, "end": "</g>"},
    ],
}
FREE: dict[str, Any] = {"type": "triggered_tags", "triggers": ["<f=", "<g"], "tags": [F, G]}
NEWER = {"type": "structural_tag", "format": FREE}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    save_byte_tokenizer(folder)
    found = load_tokenizer(folder)
    found.backend.add_special_tokens([AddedToken("<call>"), AddedToken("</call>")])
    return found


@pytest.fixture(scope="module")
def compiler(tokenizer: Tokenizer) -> GuideCompiler:
    return GuideCompiler(tokenizer, PADDED, {EOS})


def accepts(compiler: GuideCompiler, tokenizer: Tokenizer, tag: Any, text: str) -> bool:
    params = StructuredOutputsParams(structural_tag=tag)
    check_size(params)
    matcher = compiler.guide(params)._start.deep_copy()
    tokens = tokenizer.encode(text, add_special_tokens=False)
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


@pytest.mark.parametrize("tag", [OLDER, NEWER, json.dumps(OLDER), json.dumps(NEWER)], ids=str)
def test_free_text_and_tags(compiler: GuideCompiler, tokenizer: Tokenizer, tag: Any) -> None:
    good = ["", "hi <", 'a <f=a>{"a": 1}</f> b', "<g>true</g><g>false</g>.", "<f", "é\n<f= "[:4]]
    bad = ["<f=", "<f=b>", "<f=a>x", '<f=a>{"a": 1}', "x<g>1</g>", "<g", "<g>true</f>"]
    for text in good:
        assert accepts(compiler, tokenizer, tag, text), text
    for text in bad:
        assert not accepts(compiler, tokenizer, tag, text), text


SEVERAL = {"type": "tags_with_separator", "tags": [G], "separator": ", "}
AB = {"type": "regex", "pattern": "[ab]+/?"}
IN_TAG = {"type": "tag", "begin": "[", "end": ["]", ")"], "content": {"type": "any_text"}}


@pytest.mark.parametrize(
    ("form", "good", "bad"),
    [
        ({"type": "const_string", "value": 'x"<'}, ['x"<'], ["", "x"]),
        (JSON, ['{"a": 1}'], ["", "{}", '{"a": 1}x']),
        (JSON | {"json_schema": json.dumps(BOOLEAN)}, ["true"], ["1"]),
        (AB, ["a", "abba/"], ["", "ab/c"]),
        ({"type": "grammar", "grammar": 'start: "a" "b"*'}, ["a", "abb"], ["b"]),
        ({"type": "grammar", "grammar": 'root ::= "a" | "c"'}, ["a", "c"], ["b"]),
        ({"type": "any_text"}, ["", "é\n<g>"], []),
        ({"type": "sequence", "elements": [AB, FREE]}, ["a/", "b <g>true</g>"], ["", "a<g>"]),
        ({"type": "or", "elements": [AB, JSON]}, ["ab", '{"a": 2}'], ["", "a{"]),
        ({"type": "tag"} | G, ["<g>true</g>"], ["", "<g>true"]),
        (IN_TAG, ["[]", "[a b)", "[[]"], ["[", "[]]", "[)x"]),
        ({"type": "tag", "begin": "[", "end": "]", "content": FREE},
         ["[]", "[a<g>true</g>b]", "[<g>true</g><g>false</g>]"], ["[<g>", "[<g]", "[a]b"]),
        (SEVERAL, ["", "<g>true</g>", "<g>true</g>, <g>false</g>"], ["<g>true</g>,", "x"]),
        (SEVERAL | {"at_least_one": True}, ["<g>true</g>"], [""]),
        (SEVERAL | {"stop_after_first": True}, ["", "<g>true</g>"], ["<g>true</g>, <g>true</g>"]),
        (FREE | {"at_least_one": True}, ["a<g>true</g>b"], ["", "a"]),
        (FREE | {"stop_after_first": True}, ["", "a<g>true</g>"], ["<g>true</g>b"]),
        (FREE | {"stop_after_first": True, "at_least_one": True}, ["a<g>true</g>"], ["", "a"]),
    ],
    ids=lambda one: str(one)[:60],
)  # fmt: skip
def test_formats(
    compiler: GuideCompiler, tokenizer: Tokenizer, form: Any, good: list[str], bad: list[str]
) -> None:
    for text in good:
        assert accepts(compiler, tokenizer, {"format": form}, text), text
    for text in bad:
        assert not accepts(compiler, tokenizer, {"format": form}, text), text


def test_markers_that_are_tokens(compiler: GuideCompiler, tokenizer: Tokenizer) -> None:
    """They are the tokens alone: letters that spell one are not free text."""
    tag = {
        "triggers": ["<call>"],
        "structures": [{"begin": "<call>{", "schema": BOOLEAN, "end": "}\n</call>"}],
    }
    assert accepts(compiler, tokenizer, tag, "so <call>{true}\n</call><call>{false}\n</call> end")
    assert not accepts(compiler, tokenizer, tag, "so <call>{1}\n</call>")
    matcher = compiler.guide(StructuredOutputsParams(structural_tag=tag))._start.deep_copy()
    assert matcher.try_consume_tokens(list(b"so <call>")) < len(b"so <call>")
    free = {"format": {"type": "tag", "begin": "<call>", "content": {"type": "any_text"},
                       "end": "!</call>"}}  # fmt: skip
    assert accepts(compiler, tokenizer, free, "<call>so!!</call>")
    assert not accepts(compiler, tokenizer, free, "<call>so</call>")


@given(seed=st.integers(0, 2**32))
def test_any_walk_keeps_to_the_schema_between_tags(
    compiler: GuideCompiler, tokenizer: Tokenizer, seed: int
) -> None:
    """Text is free outside; a walk is led to the triggers, which chance would not find."""
    only = {"triggers": ["a"], "structures": [{"begin": "ab", "schema": INTEGER, "end": "c"}]}
    tokens = walk(compiler.guide(StructuredOutputsParams(structural_tag=only)), seed)
    if tokens is None:
        return
    text = tokenizer.decode(tokens)
    rest = text
    while "a" in rest:
        _, _, rest = rest.partition("a")
        assert rest.startswith("b")
        found, end = json.JSONDecoder().raw_decode(rest[1:].lstrip())
        assert conforms(found, INTEGER)
        rest = rest[1:].lstrip()[end:].lstrip()
        assert rest.startswith("c")
        rest = rest[1:]


def tags(count: int) -> dict[str, Any]:
    return FREE | {"tags": [F] * count}


def nested(depth: int) -> dict[str, Any]:
    form: dict[str, Any] = AB
    for _ in range(depth - 1):
        form = {"type": "sequence", "elements": [form]}
    return {"format": form}


@pytest.mark.parametrize(
    ("tag", "words"),
    [
        ("{", "it is not JSON"),
        ("5", "it must be an object, got 5"),
        ({"type": "x"}, "type must be 'structural_tag', got 'x'"),
        ({}, "structures must be a list that is not empty, got None"),
        ({"structures": OLDER["structures"]}, "triggers must be a list"),
        (OLDER | {"trigger": 5}, "trigger is not known; did you mean triggers?"),
        (OLDER | {"triggers": [""]}, "triggers[0] must be a text, got ''"),
        (OLDER | {"triggers": ["<f="]}, "structures[1].begin must begin with one of the triggers"),
        (OLDER | {"structures": [5]}, "structures[0] must be an object, got 5"),
        (OLDER | {"structures": [{"schema": {}}]}, "structures[0].begin must be a text, got None"),
        (OLDER | {"structures": [{"begin": "<g", "schema": 5}]}, "structures[0].schema must be a"),
        (OLDER | {"structures": [{"begin": "<g", "schema": "{"}]}, "structures[0].schema is not J"),
        (OLDER | {"structures": [{"begin": "<g", "end": 5}]}, "structures[0].end must be a text"),
        ({"format": 5}, "format must be an object with a type, got 5"),
        ({"format": {"type": "qwen_xml_parameter"}}, "format.type must be one of const_string, "),
        ({"format": {"type": []}}, "format.type must be one of const_string, "),
        ("[" * 100_000, "it is nested too deeply"),
        ({"format": JSON | {"json_schema": '{"items":' * 5000 + "{}" + "}" * 5000}}, "too deeply"),
        ({"format": AB | {"x": 5}}, "format.x is not known"),
        ({"format": {"type": "regex"}}, "format.pattern must be a text, got None"),
        ({"format": FREE | {"tags": [{"begin": "<g", "end": "x"}]}}, "format.tags[0].content is m"),
        ({"format": FREE | {"tags": [G | {"type": "or"}]}}, "format.tags[0].type must be 'tag'"),
        ({"format": SEVERAL | {"tags": [G | {"type": "or"}]}}, "format.tags[0].type must be 'tag'"),
        (
            {"format": {"type": "tag", "begin": "a", "content": FREE}},
            "format.content must be the",
        ),
        (
            {"format": {"type": "sequence", "elements": [FREE, AB]}},
            "format.elements[0] must be",
        ),
        ({"format": {"type": "sequence", "elements": []}}, "format.elements must be a list that"),
        ({"format": tags(MAX_TAGS + 1)}, f"there may be {MAX_TAGS} tags"),
        (nested(MAX_DEPTH + 1), f"must be nested at most {MAX_DEPTH} levels deep"),
    ],
    ids=lambda one: str(one)[:70],
)
def test_what_is_refused(compiler: GuideCompiler, tag: Any, words: str) -> None:
    params = StructuredOutputsParams(structural_tag=tag)
    for refuse in (compiler.guide, check_size):
        with pytest.raises(InvalidRequestError, match=re.escape(words)) as caught:
            refuse(params)
        assert str(caught.value).startswith("structured_outputs must be a valid structural tag: ")


@pytest.mark.parametrize(
    "form",
    [
        {"type": "grammar", "grammar": "start: missing"},
        {"type": "regex", "pattern": "("},
        JSON | {"json_schema": {"type": "x"}},
        JSON | {"json_schema": {"$ref": "#"}},
    ],
)
def test_parts_that_are_no_grammar(compiler: GuideCompiler, form: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match=r"^structured_outputs must be"):
        compiler.guide(StructuredOutputsParams(structural_tag={"format": form}))


def test_the_largest_that_is_taken(compiler: GuideCompiler) -> None:
    compiler.guide(StructuredOutputsParams(structural_tag={"format": tags(MAX_TAGS)}))
    compiler.guide(StructuredOutputsParams(structural_tag=nested(MAX_DEPTH)))
