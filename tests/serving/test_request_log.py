"""The line of a request: who asks, how much, and what of it is not the default."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jax_engine import PoolingParams, RequestOutputKind, SamplingParams
from jax_engine.engine.requests.prompts import Prompt
from jax_engine.outputs import CompletionOutput, RequestOutput
from jax_engine.serving.request_log import (
    CLIENT_REQUEST,
    MAX_SHOWN,
    ClientRequest,
    OutputLog,
    RequestLog,
)

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


type Piece = tuple[int, str, list[int], str | None]


def lines_of(
    caplog: pytest.LogCaptureFixture,
    pieces: list[list[Piece]],
    kind: RequestOutputKind,
    most: int = 99,
    **params: Any,
) -> list[str]:
    """What is logged of outputs that come so: index, text, token ids, reason."""
    caplog.clear()
    with caplog.at_level(logging.INFO, "jax_engine"):
        log = OutputLog("a", SamplingParams(output_kind=kind, **params), most)
        for outputs in pieces:
            found = [CompletionOutput(i, text, ids, finish_reason=r) for i, text, ids, r in outputs]
            log(RequestOutput("a", None, [1], found, False))
    return caplog.messages


@pytest.mark.parametrize(
    ("kind", "pieces"),
    [
        (RequestOutputKind.DELTA, [[(0, "He", [1, 2], None)], [(0, "y", [3], "stop")]]),
        (
            RequestOutputKind.CUMULATIVE,
            [[(0, "He", [1, 2], None)], [(0, "Hey", [1, 2, 3], "stop")]],
        ),
        (RequestOutputKind.FINAL_ONLY, [[(0, "Hey", [1, 2, 3], "stop")]]),
    ],
)
def test_an_output_has_one_line_when_it_ends(
    caplog: pytest.LogCaptureFixture, kind: RequestOutputKind, pieces: list[list[Piece]]
) -> None:
    begin = "Generated response a: index: 0, tokens: 3, finish_reason: stop"
    assert lines_of(caplog, pieces, kind) == [f"{begin}, output: 'Hey'"]
    assert lines_of(caplog, pieces, kind, 2) == [f"{begin}, output: 'He'"]
    assert lines_of(caplog, pieces, kind, 0) == [begin]
    ids = lines_of(caplog, pieces, kind, 2, detokenize=False)
    assert ids == [f"{begin}, output: [1, 2]"]
    assert lines_of(caplog, pieces[:-1], kind) == []


def test_samples_have_a_line_each(caplog: pytest.LogCaptureFixture) -> None:
    """Also where an output that has ended is told again with those that go on."""
    pieces: list[list[Piece]] = [
        [(0, "x", [1], "length"), (1, "y", [1], None)],
        [(0, "x", [1], "length"), (1, "yz", [1, 2], "stop")],
    ]
    found = lines_of(caplog, pieces, RequestOutputKind.CUMULATIVE)
    assert [one.partition("index: ")[2][:1] for one in found] == ["0", "1"]
    assert found[1].endswith("output: 'yz'")


def test_an_output_is_called_as_its_client_calls_it(caplog: pytest.LogCaptureFixture) -> None:
    token = CLIENT_REQUEST.set(ClientRequest("cmpl-mine\nfake"))
    try:
        pieces: list[list[Piece]] = [[(0, "a\nb", [1], "stop")]]
        (found,) = lines_of(caplog, pieces, RequestOutputKind.FINAL_ONLY)
    finally:
        CLIENT_REQUEST.reset(token)
    assert found.startswith("Generated response cmpl-mine\\nfake: ") and "\n" not in found
    assert caplog.records[0].__dict__["request_id"] == "cmpl-mine\nfake"
