"""Bodies of few bytes and many values hold nobody up: they are refused before they are decoded."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from jax_engine.serving.api import middleware
from jax_engine.serving.api.middleware import ValueCount
from jax_engine.serving.api.sampling_fields import MAX_BIASES, MAX_WORDS
from tests.serving.fields.cases import WAYS
from tests.support.scripted_app import Make

C = "/v1/completions"
TEXT = st.text(st.sampled_from([*'ab",[{:}]\\/é\n\u2241\U0001f600']), max_size=6)
values = st.recursive(
    st.none() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
)


def expected(value: Any) -> int:
    """One for each container, and one for each item but the first of each."""
    if not isinstance(value, list | dict):
        return 0
    inner = value if isinstance(value, list) else value.values()
    return 1 + max(0, len(value) - 1) + sum(map(expected, inner))


@given(value=values, plain=st.booleans(), cuts=st.lists(st.integers(0, 99), max_size=5))
@example(value=["\\", '"', ",", '\\"', 1], plain=True, cuts=[2, 3, 4, 5, 6])
def test_values_are_counted_at_any_cut(value: Any, plain: bool, cuts: list[int]) -> None:
    data = json.dumps(value, ensure_ascii=plain).encode()
    places = sorted({0, len(data), *(one % (len(data) + 1) for one in cuts)})
    counted = ValueCount()
    for start, end in itertools.pairwise(places):
        counted.take(data[start:end])
    assert counted.count == expected(value)


@pytest.mark.parametrize("text", ["x" * 3000, ',[{"' * 700, "\\" * 2001, "é,\n" * 900])
@pytest.mark.parametrize("plain", [False, True])
def test_a_text_has_one_value(make: Make, text: str, plain: bool) -> None:
    data = json.dumps({"prompt": text}, ensure_ascii=plain).encode()
    counted = ValueCount()
    for start in range(0, len(data), 7):
        counted.take(data[start : start + 7])
    assert counted.count == 1


def test_a_body_has_so_many_values_and_no_more(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "MAX_VALUES", 10)
    client, llm = make()
    fits = client.post(C, json={"prompt": [1] * 7, "max_tokens": 1})  # and three around them
    assert fits.status_code == 200 and len(llm.asked) == 1
    monkeypatch.setattr(json, "loads", None)  # it is not decoded
    error = client.post(C, json={"prompt": [1] * 8, "max_tokens": 1})
    assert error.status_code == 413 and len(llm.asked) == 1
    assert '"the body must hold at most 10 values: ' in error.text


def test_other_encodings_are_not_counted_but_refused(make: Make) -> None:
    """A character of UTF-16 may have the bytes of a quote."""
    client, llm = make()
    for coding in ("utf-16", "utf-16-le", "utf-32"):
        body = json.dumps({"prompt": "\u2241"}, ensure_ascii=False).encode(coding)
        answer = client.post(C, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 400 and not llm.asked
        assert "must be JSON in UTF-8" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "name"),
    [(path, name) for path, way in WAYS.items() for name in way.model.model_fields],
)
@pytest.mark.parametrize("wrong", [[None, {}] * 500, {str(i): [{}] for i in range(1000)}])
def test_a_thousand_wrong_values_are_a_few_errors(path: str, name: str, wrong: Any) -> None:
    """Pydantic would write an error for each, which takes 40 microseconds."""
    way = WAYS[path]
    try:
        way.model(**(way.plain | {name: wrong}))
    except ValidationError as error:
        assert error.error_count() < 20
    except Exception:  # one that names the field, at once
        pass


@pytest.mark.parametrize(
    ("path", "field", "good", "limit"),
    [
        (C, "stop", ["a"], MAX_WORDS),
        (C, "bad_words", ["a"], MAX_WORDS),
        ("/v1/messages", "stop_sequences", ["a"], MAX_WORDS),
        (C, "logit_bias", None, MAX_BIASES),
    ],
)
def test_lists_that_each_token_is_compared_with_have_limits(
    make: Make, path: str, field: str, good: Any, limit: int
) -> None:
    client, llm = make()
    plain = WAYS[path].plain | ({"seed": 5} if path == C else {})
    for count, status in ((limit, 200), (limit + 1, 400)):
        value = {str(i): 1 for i in range(count)} if good is None else good * count
        answer = client.post(path, json=plain | {field: value})
        assert answer.status_code == status, answer.text[:200]
    assert f"at most {limit} items" in answer.json()["error"]["message"] and len(llm.asked) == 1
