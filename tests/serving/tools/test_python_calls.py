"""Calls written in Python, against Python's own parser."""

import ast
import json
import keyword
import warnings
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jax_engine.serving.parsers.pythonic_tool_parser import python_calls

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
keys = st.text() | st.integers() | st.booleans() | st.none()
literals: Any = st.recursive(
    scalars,
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(keys, inner),
    max_leaves=8,
)
names = st.from_regex(r"[A-Za-z_]\w{0,5}", fullmatch=True) | st.sampled_from(keyword.kwlist)
arguments = st.dictionaries(names, literals, max_size=3)


def written(name: str, given: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})"


@given(st.lists(st.tuples(names, arguments), min_size=1, max_size=3), st.sampled_from([", ", "\n"]))
@example([("f", {"a": {1: 2, "1": 3}})], ", ")
@example([("f", {"a": float("inf")})], ", ")
@example([("f", {"a": {True: 1, 1.5: 2, None: 3, -2: 4}})], ", ")
def test_literals_are_read_as_json_writes_them(
    calls: list[tuple[str, dict[str, Any]]], between: str
) -> None:
    found = python_calls(f"[{between.join(written(*one) for one in calls)}]")
    try:
        wanted = [(name, _strict(given)) for name, given in calls]
    except ValueError:
        assert found is None, "infinity, or a key twice, has no JSON"
        return
    assert found is not None
    assert [(name, json.loads(text)) for name, text in found] == wanted


def _strict(given: dict[str, Any]) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a key twice")
        return dict(pairs)

    return json.loads(json.dumps(given, allow_nan=False), object_pairs_hook=unique)


@given(
    st.sampled_from(["", "r", "R", "u"]),
    st.sampled_from(["'", '"', "'''", '"""']),
    st.text(alphabet="\\'\"nxuUN{}041aZ é\n", max_size=12)
    | st.lists(
        st.sampled_from(["\\x4", "1", "\\u00e", "9", "\\U0001F60", "\\N{DASH}", "\\N{EM DASH}"]),
        max_size=4,
    ).map("".join),
)
@example("", "'", "\\400")
@example("", "'", "\\\n")
@example("r", "'", "\\'")
@example("", "'''", "''")
def test_strings_are_pythons(prefix: str, quote: str, body: str) -> None:
    """Line breaks are the exception: Python wants them escaped, or between three quotes."""
    text = prefix + quote + body + quote
    try:
        with warnings.catch_warnings(action="ignore"):
            wanted = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        wanted = None
    found = python_calls(f"[f(a={text})]")
    if isinstance(wanted, str):
        assert found is not None and json.loads(found[0][1]) == {"a": wanted}
    elif "\n" not in body or len(quote) == 3:
        assert found is None


@pytest.mark.parametrize(
    "text",
    ["", "[", "[]", "[f]", "[f(]", "[f(a)]", "[f(a=)]", "[f(a==1)]", "[f(,)]", "[1()]", "f()"],
)
def test_what_is_no_list_of_calls(text: str) -> None:
    assert python_calls(text) is None


def test_no_depth_is_an_exception() -> None:
    for depth in (50, 5_000, 100_000):
        found = python_calls("[f(a=" + "[" * depth + "]" * depth + ")]")
        assert (found is not None) == (depth == 50)
