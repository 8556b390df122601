"""schemathesis asks every endpoint of the server's own OpenAPI document: none may answer 5xx."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from conftest import server
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode

LIMITS = ("--max-model-len=64", "--request-timeout=5", "--max-samples=16", "--max-num-seqs=16")
EXAMPLES = 15  # of an operation, good and bad ones each
ANSWER_S = 20


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with server(*LIMITS) as found:
        yield found


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_no_endpoint_answers_5xx(address: str, mode: GenerationMode) -> None:
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    operations = [one.ok() for one in schema.get_all_operations()]
    assert len(operations) > 10
    answered = {one.label for one in operations if _ask(one, mode)}
    assert {"GET /health", "GET /v1/models", "POST /tokenize"} <= answered or mode.is_negative


def _ask(operation: Any, mode: GenerationMode) -> list[int]:
    """What answers were 200; raises if one is not as it must be."""
    answered = []

    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
        phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        if isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
            case.body["model"] = "smollm2"  # else each answer were 404
        response = case.call(timeout=ANSWER_S)
        _check(case, response)
        if response.status_code == 200:
            answered.append(response.status_code)

    ask()
    return answered


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
