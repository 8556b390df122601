"""Small parts of the server that nothing else needs to run: blocks, events, conversations, help."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from jax_engine import InvalidRequestError, PoolingParams, SamplingParams
from jax_engine.serving.api.chat_messages import Conversation
from jax_engine.serving.api.content_blocks import Blocks
from jax_engine.serving.api.streaming import with_errors
from jax_engine.serving.messages import params_fields, streams
from jax_engine.serving.parsers.parser_base import CallDelta, TurnDelta
from jax_engine.serving.stat_loggers import families

CALL = CallDelta(0, "{}", "a", "f")


@pytest.mark.parametrize(
    ("said", "steps", "texts"),
    [
        ([" ", ""], [], []),
        (["a", " ", ""], ["begin text", "grow text", "grow text"], ["a "]),
        (["\n", " a"], ["begin text", "grow text"], ["\n a"]),
        ([" ", CALL], ["begin call", "grow call"], ["{}"]),
        (["a", CALL, " "], ["begin text", "grow text", "end text", "begin call", "grow call"],
         ["a", "{}"]),
        ([CALL, " ", "b"], ["begin call", "grow call", "end call", "begin text", "grow text"],
         ["{}", " b"]),
    ],
)  # fmt: skip
def test_white_space_alone_begins_no_block(
    said: list[Any], steps: list[str], texts: list[str]
) -> None:
    """It belongs to the text around it; beside calls it is none."""
    blocks, found = Blocks(), []
    for one in said:
        what = TurnDelta(one) if isinstance(one, str) else TurnDelta(calls=[one])
        found += [f"{step.what} {step.block.kind}" for step in blocks.take(what)]
    if blocks.all and blocks.all[-1].kind == "call":
        assert [*blocks.finish()] == []
    assert (found, [one.text for one in blocks.all]) == (steps, texts)


def test_white_space_that_is_all_is_said_at_the_end() -> None:
    blocks = Blocks()
    assert [*blocks.take(TurnDelta(" \n"), ["one"])] == []
    assert [(step.what, step.text, step.logprobs) for step in blocks.finish()] == [
        ("begin", "", []), ("grow", " \n", ["one"]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("texts", "content"),
    [
        (["a"], "a"),
        ([""], ""),
        ([], ""),
        (["a", "b"], [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
    ],
)
def test_a_message_of_one_text_is_that_text(texts: list[str], content: Any) -> None:
    """Many templates take a string alone."""
    conversation = Conversation()
    conversation.add_texts("user", texts)
    assert conversation.done() == [{"role": "user", "content": content}]


def test_an_error_before_the_first_event_is_raised() -> None:
    """It has a status of its own; a later one is told by events."""

    async def events(count: int) -> AsyncIterator[str]:
        for number in range(count):
            yield str(number)
        raise InvalidRequestError("wrong")

    async def all_of(count: int) -> list[str]:
        return [one async for one in with_errors(events(count), lambda error: [error.message, "."])]

    with pytest.raises(InvalidRequestError, match="wrong"):
        asyncio.run(all_of(0))
    assert asyncio.run(all_of(2)) == ["0", "1", "wrong", "."]


def test_a_metric_s_help_is_its_name_in_words() -> None:
    label = {"labels": {"engine": "0"}}
    found = families([
        {"kind": "Counter", "name": "vllm:prompt_tokens", "value": 3, **label},
        {"kind": "Gauge", "name": "vllm:num_requests_running", "value": 2, **label},
        {"kind": "Gauge", "name": "vllm:num_requests_running", "value": 5,
         "labels": {"engine": "1"}},
        {"kind": "Histogram", "name": "vllm:request_params_n", "sum": 4.0,
         "buckets": {"1": 1, "+Inf": 2}, **label},
    ])  # fmt: skip
    counter, gauge, histogram = found
    assert [(one.documentation, one.type) for one in (counter, gauge, histogram)] == [
        ("prompt tokens", "counter"), ("num requests running", "gauge"),
        ("request params n", "histogram"),
    ]  # fmt: skip
    assert [(one.labels, one.value) for one in gauge.samples] == [
        ({"engine": "0"}, 2), ({"engine": "1"}, 5),
    ]  # fmt: skip
    assert {one.name: one.value for one in histogram.samples}["vllm:request_params_n_sum"] == 4.0


@pytest.mark.parametrize(
    ("fields", "read"),
    [
        ({}, True),
        ({"stop": ["x"]}, True),
        ({"use_beam_search": True, "n": 2, "temperature": 0.0}, False),
        ({"best_of": 3}, False),
        ({"n": 3}, True),
    ],
    ids=str,
)
def test_who_reads_before_the_end(fields: dict[str, Any], read: bool) -> None:
    """Ranked requests are left out: only their end tells which sequences are returned."""
    assert streams(SamplingParams(**fields)) is read
    assert not streams(PoolingParams()) and params_fields(PoolingParams()) == {}
