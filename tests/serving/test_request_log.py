"""The line of a request: who asks, how much, and what of it is not the default."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jax_engine import PoolingParams, SamplingParams
from jax_engine.engine.prompts import Prompt
from jax_engine.serving.request_log import CLIENT_REQUEST, MAX_SHOWN, ClientRequest, RequestLog

PROMPT = Prompt("one two three", [5, 6, 7])
type Line = Callable[..., str]


@pytest.fixture
def line(caplog: pytest.LogCaptureFixture) -> Iterator[Line]:
    def of(params: Any = None, prompt: Prompt = PROMPT, name: str = "a", most: int = 0) -> str:
        caplog.clear()
        RequestLog(most)(name, prompt, params or SamplingParams())
        (record,) = caplog.records
        return record.getMessage()

    with caplog.at_level(logging.INFO, "jax_engine"):
        yield of


@pytest.mark.parametrize(
    ("params", "shown"),
    [
        (SamplingParams(), "SamplingParams()"),
        (SamplingParams(max_tokens=3, seed=7), "SamplingParams(seed=7, max_tokens=3)"),
        (SamplingParams(stop=["x"], stop_token_ids=[]), "SamplingParams(stop=['x'])"),
        (SamplingParams(stop_token_ids=[4], max_tokens=None),
         "SamplingParams(stop_token_ids=[4], max_tokens=None)"),
        (PoolingParams(), "PoolingParams()"),
        (PoolingParams(task="embed"), "PoolingParams(task='embed')"),
    ],
)  # fmt: skip
def test_only_what_is_not_the_default_is_shown(line: Line, params: Any, shown: str) -> None:
    assert line(params) == f"Received request a: prompt tokens: 3, params: {shown}"


@pytest.mark.parametrize(
    ("prompt", "most", "shown"),
    [
        (PROMPT, 0, ""),
        (PROMPT, 7, "prompt: 'one two', "),
        (PROMPT, 99, "prompt: 'one two three', "),
        (Prompt(None, [5, 6, 7]), 2, "prompt: [5, 6], "),
        (Prompt(None, [5, 6, 7]), 0, ""),
        (Prompt("", []), 5, "prompt: '', "),
        (Prompt("a\nb", [1]), 5, "prompt: 'a\\nb', "),
    ],
)
def test_as_much_of_a_prompt_as_is_asked_for(
    line: Line, prompt: Prompt, most: int, shown: str
) -> None:
    expected = f"Received request a: {shown}prompt tokens: {len(prompt.token_ids)}, params: "
    assert line(prompt=prompt, most=most).startswith(expected)


@pytest.mark.parametrize("length", [MAX_SHOWN - 1, MAX_SHOWN, MAX_SHOWN + 1, 9 * MAX_SHOWN])
def test_a_client_makes_no_line_of_any_length(line: Line, length: int) -> None:
    frame = len("SamplingParams(stop=[''])")
    text = "x" * (length - frame)
    said = line(SamplingParams(stop=[text])).partition("params: ")[2]
    whole = f"SamplingParams(stop=['{text}'])"
    assert len(whole) == length
    assert said == (whole if length <= MAX_SHOWN else whole[: MAX_SHOWN - 3] + "...")


def test_a_request_is_called_as_its_client_calls_it(
    line: Line, caplog: pytest.LogCaptureFixture
) -> None:
    """Within a request of HTTP that is its own id; it cannot begin a line of its own."""
    token = CLIENT_REQUEST.set(ClientRequest("cmpl-mine\nfake"))
    try:
        found = line(name="engine's")
    finally:
        CLIENT_REQUEST.reset(token)
    assert found.startswith("Received request cmpl-mine\\nfake: ") and "\n" not in found
    assert caplog.records[0].__dict__["request_id"] == "cmpl-mine\nfake"
    assert line(name="engine's").startswith("Received request engine's: ")
