"""Times of a request in its answer: what they are counted from, and which answers have them."""

from typing import Any

import pytest
from msgspec import to_builtins

from jax_engine.outputs import RequestMetrics
from jax_engine.serving.api.request_timings import Timings
from tests.support.scripted_app import Make, events, named_events

METRICS = RequestMetrics(
    1.0, first_token_time=3.5, queued_time=1.5, scheduled_time=2.0, last_token_time=5.5
)
TIMES = {
    "time_to_first_token_ms": 1500.0,
    "generation_time_ms": 2000.0,
    "queue_time_ms": 500.0,
    "mean_itl_ms": 500.0,
    "tokens_per_second": 5 / 3.5,
}
CHAT = {"messages": [{"role": "user", "content": "hi"}]}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "x"},
    "/v1/chat/completions": CHAT,
    "/v1/responses": {"input": "x"},
}
ON = {"per_request_metrics": True}
AT_END = {"stream": True, "stream_options": {"include_usage": True}}


def test_what_times_are_counted_from() -> None:
    assert to_builtins(Timings.of(METRICS, 5)) == pytest.approx(TIMES)
    one = to_builtins(Timings.of(METRICS, 1))
    assert one["mean_itl_ms"] is None and one["tokens_per_second"] == pytest.approx(1 / 3.5)


def test_what_is_not_known_is_null() -> None:
    assert set(to_builtins(Timings.of(RequestMetrics(1.0), 5)).values()) == {None}


def test_no_time_at_all_is_no_rate() -> None:
    at_once = RequestMetrics(1.0, first_token_time=1.0, scheduled_time=1.0, last_token_time=1.0)
    assert Timings.of(at_once, 5).tokens_per_second is None


@pytest.mark.parametrize("path", BODIES)
def test_answers_have_them_if_they_are_asked_for(make: Make, path: str) -> None:
    client, _ = make(ON, metrics=METRICS)
    assert client.post(path, json=BODIES[path]).json()["metrics"] == pytest.approx(TIMES)
    client, _ = make(metrics=METRICS)
    assert client.post(path, json=BODIES[path]).json().get("metrics") is None


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_a_stream_has_them_with_its_usage(make: Make, path: str) -> None:
    client, _ = make(ON, metrics=METRICS)
    *others, last = events(client.post(path, json=BODIES[path] | AT_END).text)
    assert last["metrics"] == pytest.approx(TIMES) and last["usage"]["completion_tokens"] == 5
    assert not any("metrics" in one for one in others)
    without = events(client.post(path, json=BODIES[path] | {"stream": True}).text)
    assert not any("metrics" in one for one in without)
    client, _ = make(metrics=METRICS)
    off = events(client.post(path, json=BODIES[path] | AT_END).text)
    assert not any("metrics" in one for one in off)


def test_a_stream_of_responses_has_them_at_the_end(make: Make) -> None:
    client, _ = make(ON, metrics=METRICS)
    *others, last = named_events(
        client.post("/v1/responses", json={"input": "x", "stream": True}).text
    )
    assert last["response"]["metrics"] == pytest.approx(TIMES)
    assert not any("metrics" in one.get("response", {}) for one in others)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "x", "n": 2}),
        ("/v1/completions", {"prompt": ["x", "y"]}),
        ("/v1/chat/completions", CHAT | {"n": 2}),
    ],
)
def test_several_outputs_have_none(make: Make, path: str, body: dict[str, Any]) -> None:
    client, _ = make(ON, metrics=METRICS)
    assert client.post(path, json=body).json()["metrics"] is None
    *_, last = events(client.post(path, json=body | AT_END).text)
    assert last["metrics"] is None
