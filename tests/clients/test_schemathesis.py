"""schemathesis asks every endpoint of the server's own OpenAPI document: none may answer 5xx."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from conftest import server
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import response_schema_conformance

LIMITS = ("--max-model-len=64", "--request-timeout=900", "--max-samples=16", "--max-num-seqs=16")
EXAMPLES = 15  # of an operation, good and bad ones each
ANSWER_S = 900  # only a hang takes so long
USER: Any = [{"role": "user", "content": "Hi"}]
GOOD: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "Hi", "max_tokens": 4},
    "/v1/chat/completions": {"messages": USER, "max_tokens": 4},
    "/v1/responses": {"input": "Hi", "max_output_tokens": 4},
    "/v1/messages": {"model": "smollm2", "messages": USER, "max_tokens": 4},
    "/v1/messages/count_tokens": {"model": "smollm2", "messages": USER},
    "/v1/embeddings": {"input": "Hi"},
    "/pooling": {"input": "Hi", "task": "embed"},
    "/v1/score": {"text_1": "Hi", "text_2": "Ho"},
    "/v1/rerank": {"query": "Hi", "documents": ["Hi", "Ho"]},
    "/tokenize": {"prompt": "Hi"},
    "/detokenize": {"tokens": [1, 2]},
}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with server(*LIMITS) as found:
        yield found


@pytest.fixture(scope="module")
def operations(address: str) -> list[Any]:
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    return [one.ok() for one in schema.get_all_operations()]


def test_good_requests_with_odd_fields(operations: list[Any]) -> None:
    """Fields of the types that the document tells, one or two of them in a request that is good."""
    statuses = {one.label: _ask(one, GenerationMode.POSITIVE) for one in operations}
    never = {label for label, found in statuses.items() if 200 not in found}
    # A random name is no model's; the default model has no head for classes.
    assert never == {"GET /v1/models/{name}", "POST /classify"}, statuses


def test_bad_requests(operations: list[Any]) -> None:
    with_body = [one for one in operations if one.method == "post"]
    assert len(with_body) >= 8
    for one in with_body:
        assert 400 in _ask(one, GenerationMode.NEGATIVE), one.label


def _ask(operation: Any, mode: GenerationMode) -> Counter[int]:
    """The statuses of the answers; raises if one is not as it must be."""
    statuses: Counter[int] = Counter()

    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
        phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode), data=st.data())
    def ask(case: Any, data: st.DataObject) -> None:
        if mode.is_positive and operation.path in GOOD and case.body:
            names = st.sets(st.sampled_from(sorted(case.body)), max_size=2)
            case.body = GOOD[operation.path] | {one: case.body[one] for one in data.draw(names)}
        response = case.call(timeout=ANSWER_S)
        statuses[response.status_code] += 1
        _check(case, response)

    ask()
    return statuses


def _check(case: Any, response: Any) -> None:
    kind = response.headers.get("content-type", [""])[0].partition(";")[0]
    told = case.as_curl_command(), response.status_code, response.text[:500]
    if response.status_code == 504 and case.body.get("timeout") is not None:
        return  # who gives little time gets no answer
    assert response.status_code < 500, told
    if kind == "application/json":
        json.loads(response.text)
    else:
        assert kind in ("text/event-stream", "text/plain") and response.status_code == 200, told
    if response.status_code != 200:
        case.validate_response(response, checks=[response_schema_conformance])
