"""Schemas and other guides: followed where simple, answered or refused in time where odd."""

import json
from functools import partial
from typing import Any

from hypothesis import strategies as st

from paged_conformance.properties import Broken, Capabilities, Property, demand
from paged_conformance.server.client import PATHS, Client
from paged_conformance.server.compare import said
from paged_conformance.server.hostile import outlives
from paged_conformance.server.probe import Target
from paged_conformance.server.smaller import smaller

Schema = dict[str, Any]
NAMES = ("a", "b c", "ü", "$ref", "x" * 40)
PATTERNS = (
    "a+", "^[a-z]{2,5}$", "(a+)+$", "(a|aa)+b", "((((a*)*)*)*)*", "[", "(?=a)b", "(?<!a)b", "\\1",
    "(a)\\1",
    "a{1000}", "(a{100}){100}", "(.{0,500}){0,500}", "\\p{L}+", "[^\\x00-\\xff]", "", "$^",
    "a{5,2}", "\\",
    "(?P<n>a)(?P=n)", "[\\ud800]", "\\bword\\b", "(?i)abc", ".*", "[a-\\d]", "x{0,99999}",
)  # fmt: skip
ODD: tuple[Any, ...] = (
    {}, True, False, [], None, "object", 5, {"type": "x"}, {"type": []}, {"type": ["string",
    "null"]},
    {"type": 5}, {"enum": []}, {"enum": [1, "a", None, {"b": [1]}]}, {"const": {"a": [1, None]}},
    {"enum": [f"word {place}" for place in range(3000)]}, {"$ref": "#"}, {"$ref": "#/$defs/none"},
    {"$ref": "http://127.0.0.1:9/schema"}, {"$ref": 5}, {"$ref": "#/a/~2"},
    {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"},
    {"$defs": {"t": {"type": "object", "properties": {"l": {"$ref": "#/$defs/t"},
    "r": {"$ref": "#/$defs/t"}}}}, "$ref": "#/$defs/t"},
    {"type": "integer", "minimum": 5, "maximum": 1}, {"type": "integer", "minimum": -(10**30),
    "maximum": 10**30},
    {"type": "number", "multipleOf": 0}, {"type": "number", "multipleOf": -1}, {"type": "integer",
    "multipleOf": 10**20},
    {"type": "integer", "exclusiveMinimum": True}, {"type": "number", "minimum": "x"},
    {"type": "number", "minimum": 1e308, "maximum": 1e-308},
    {"type": "string", "minLength": 10**9}, {"type": "string", "minLength": 5, "maxLength": 2},
    {"type": "string", "minLength": -1}, {"type": "string", "maxLength": 100_000},
    {"type": "string", "format": "x"},
    {"type": "string", "format": "date-time"}, {"type": "string", "format": 5},
    {"type": "array", "minItems": 10**9}, {"type": "array", "items": False, "minItems": 1},
    {"type": "array", "minItems": 3, "maxItems": 1}, {"type": "array", "uniqueItems": True,
    "items": {"enum": [1]}, "minItems": 2},
    {"type": "array", "prefixItems": [{"type": "string"}] * 500, "items": False}, {"type": "array",
    "items": [{}]},
    {"type": "array", "contains": {"const": 1}, "minContains": 9}, {"type": "object",
    "properties": []},
    {"type": "object", "properties": {"a": 5}}, {"type": "object", "required": ["a", "a", "z"]},
    {"type": "object", "required": "a"},
    {"type": "object", "properties": {f"p{place}": {"type": "string"} for place in range(300)}},
    {"type": "object", "patternProperties": {"(a+)+$": {"type": "string"}}}, {"type": "object",
    "patternProperties": {"[": {}}},
    {"type": "object", "propertyNames": {"pattern": "^a"}}, {"type": "object",
    "minProperties": 10**6},
    {"type": "object", "additionalProperties": {"$ref": "#"}}, {"type": "object",
    "dependentRequired": {"a": ["b"]}},
    {"not": {}}, {"oneOf": []}, {"anyOf": [False]}, {"allOf": []}, {"if": {}, "then": False,
    "else": {}},
    {"allOf": [{"type": "string"}, {"type": "integer"}]}, {"anyOf": [{"type": "string",
    "pattern": "a{300}"}] * 50},
    {"oneOf": [{"type": "string"}, {"type": "string"}]}, {"type": "object",
    "unevaluatedProperties": False},
)  # fmt: skip


def _odd() -> st.SearchStrategy[Any]:
    """Schemas of a list, with patterns, and both nested in each other."""
    leaves = st.one_of(
        st.sampled_from(ODD),
        st.sampled_from(PATTERNS).map(lambda pattern: {"type": "string", "pattern": pattern}),
        _simple(),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            inner.map(lambda one: {"type": "array", "items": one}),
            st.dictionaries(st.sampled_from(NAMES), inner, max_size=3).map(_object),
            st.lists(inner, max_size=3).map(lambda many: {"anyOf": many}),
            st.lists(inner, max_size=3).map(lambda many: {"allOf": many}),
            inner.map(lambda one: {"not": one}),
            st.tuples(inner, st.sampled_from([20, 200, 2000])).map(_deep),
        ),
        max_leaves=4,
    )


def _object(properties: dict[str, Any]) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _deep(of: tuple[Any, int]) -> Any:
    """A schema in so many others: fewer if it is long itself, since a message shows them."""
    schema, depth = of
    if depth > 300 or len(json.dumps(schema)) > 300:
        depth = 40
    for _ in range(depth):
        schema = {"type": "array", "items": schema, "maxItems": 1}
    return schema


def _simple() -> st.SearchStrategy[Schema]:
    """Schemas that any server with schemas knows, and whose answers are short."""
    words = st.lists(
        st.sampled_from(["on", "off", "left", "ü", "a b"]), min_size=1, max_size=3, unique=True
    )
    leaves: st.SearchStrategy[Schema] = st.one_of(
        words.map(lambda many: {"type": "string", "enum": many}), st.just({"type": "boolean"})
    )
    fields = st.dictionaries(st.sampled_from(["x", "yes", "z"]), leaves, min_size=1, max_size=2)
    return fields.map(lambda many: _object(many) | {"additionalProperties": False})


def _guided(has: Capabilities) -> st.SearchStrategy[Any]:
    """Requests with schemas as a format, as a tool's parameters, or as vLLM's guides."""
    kinds: list[st.SearchStrategy[Any]] = []
    if "json-schema" in has:
        kinds.append(
            st.fixed_dictionaries(
                {"as": st.just("format"), "guide": _odd(), "strict": st.booleans()}
            )
        )
    if "tools" in has:
        kinds.append(
            st.fixed_dictionaries(
                {"as": st.sampled_from(["named", "required", "auto"]), "guide": _odd()}
            )
        )
    if "structured-outputs" in has:
        guides = {
            "json": _odd(),
            "regex": st.sampled_from(PATTERNS),
            "choice": st.sampled_from(
                [
                    [],
                    ["a"],
                    ["a", "a"],
                    [""],
                    ["x" * 3000],
                    [5],
                    "a",
                    [f"w{place}" for place in range(3000)],
                ]
            ),
            "grammar": st.sampled_from(GRAMMARS),
            "structural_tag": st.sampled_from(
                ["{}", "{", '{"type": "structural_tag", "format": {}}', "5"]
            ),
        }
        kinds += [
            st.fixed_dictionaries({"as": st.just(name), "guide": of}) for name, of in guides.items()
        ]
    one = st.tuples(st.one_of(kinds), st.booleans()).map(lambda of: of[0] | {"stream": of[1]})
    return st.fixed_dictionaries({"requests": st.lists(one, min_size=1, max_size=3)})


GRAMMARS = (
    'root ::= "a"', 'root ::= root "a" | "b"', "root ::= root", "root ::= none", "", "root ::=",
    "::= root", 'root ::= ("a"?)*',
    'root ::= ("" | "")* "x"', "start: \"a\"", "start: start", "root ::= [", 'root ::= "a"{1000}',
    "root ::= " + "(" * 500 + '"a"' + ")" * 500, "\0",
    'root ::= a\na ::= b\nb ::= a', "?start: (x)*\nx: y*\ny: \"\"", 'root ::= "\\ud800"',
)  # fmt: skip


def check_odd(make: Target, example: Any, *, form: bool = True) -> None:
    """All of them at once, beside a request in order that nobody keeps waiting."""
    client = make()
    outlives(make, [_request(client, one) for one in example["requests"]], form=form)


def _request(client: Client, one: Any) -> tuple[str, dict[str, Any]]:
    body: dict[str, Any] = {"model": client.model, "max_tokens": 8, "temperature": 0}
    if one["stream"]:
        body["stream"] = True
    kind, guide = one["as"], one["guide"]
    if kind in ("format", "named", "required", "auto"):
        body["messages"] = [{"role": "user", "content": "one two"}]
        if kind == "format":
            schema = {"name": "s", "schema": guide, "strict": one["strict"]}
            return PATHS["chat"], body | {
                "response_format": {"type": "json_schema", "json_schema": schema}
            }
        function = {"type": "function", "function": {"name": "f", "parameters": guide}}
        named = {"type": "function", "function": {"name": "f"}}
        return PATHS["chat"], body | {
            "tools": [function],
            "tool_choice": named if kind == "named" else kind,
        }
    return PATHS["completions"], body | {"prompt": "one two", "structured_outputs": {kind: guide}}


def _followed(has: Capabilities) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {
            "schema": _simple(),
            "temperature": st.sampled_from([0, 1.0]),
            "stream": st.booleans() if "chat-streams" in has else st.just(False),
            "text": st.sampled_from(["one two", "Say yes or no."]),
        }
    )


def check_followed(make: Target, example: Any) -> None:
    """An answer that has ended by itself is JSON of the schema."""
    client, schema = make(), example["schema"]
    form = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema, "strict": True}}
    body = {
        "messages": [{"role": "user", "content": example["text"]}],
        "max_tokens": 80,
        "temperature": example["temperature"],
        "response_format": form,
    }
    request = {"api": "chat", "body": body}
    choice = client.ask(request, stream=example["stream"]).first
    if choice.finish != "stop":
        return
    try:
        value = json.loads(choice.text)
    except ValueError as error:
        raise Broken(f"the answer is no JSON: {choice.text!r}: {said(request)}") from error
    demand(fits(value, schema), f"{choice.text!r} is not of the schema: {said(request)}")


def fits(value: Any, schema: Schema) -> bool:
    """Whether a value is of a simple schema."""
    if schema["type"] == "boolean":
        return isinstance(value, bool)
    if schema["type"] == "string":
        return value in schema["enum"]
    fields = schema["properties"]
    return (
        isinstance(value, dict)
        and value.keys() == fields.keys()
        and all(fits(value[name], of) for name, of in fields.items())
    )


PROPERTIES = (
    Property(
        "odd-schemas",
        "Odd and deep schemas, patterns and grammars are answered or refused in bounded time, with "
        "a reason.",
        _guided,
        check_odd,
        needs=("guides",),
        smaller=smaller,
    ),
    Property(
        "schemas-end-nothing",
        "Whatever a schema, pattern or grammar is, nobody else waits for it, and the server lives.",
        _guided,
        partial(check_odd, form=False),
        needs=("guides",),
        smaller=smaller,
    ),
    Property(
        "schema-followed",
        "An answer under a simple schema that has ended by itself is JSON of that schema.",
        _followed,
        check_followed,
        needs=("json-schema",),
    ),
)
