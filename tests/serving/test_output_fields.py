"""Each field of an output comes back over the link between the engine's process and its client."""

import dataclasses
from typing import Any

import numpy as np

from jax_engine import SamplingParams
from jax_engine.engine.prompts import Prompt
from jax_engine.outputs import (
    CompletionOutput,
    PoolingOutput,
    PoolingRequestOutput,
    RequestMetrics,
    RequestOutput,
)
from jax_engine.serving.engine_server import report_of
from jax_engine.serving.messages import Outputs, decode_report, encode
from jax_engine.serving.streams import PoolingStream
from tests.support.small_engine import letters, small_engine
from tests.support.through_messages import MessageClient


def names_of(kind: type[Any]) -> list[str]:
    return [one.name for one in dataclasses.fields(kind)]


def test_a_copy_of_times_has_each_of_them() -> None:
    names = names_of(RequestMetrics)
    times = RequestMetrics(**{name: 1.5 + i for i, name in enumerate(names)})
    copy = times.copy()
    assert copy == times and copy is not times


def test_each_field_of_an_output_comes_back() -> None:
    """A client's last output is that of the engine itself, times and log-probabilities included."""
    engine, beside = small_engine(), small_engine()
    for one in (engine, beside):
        ticks = iter(range(1, 1000))
        one.clock = lambda ticks=ticks: float(next(ticks))  # type: ignore[misc]
    client = MessageClient(engine, letters())
    prompt = [1, 0, 1, 1, 0, 0, 1, 0, 1]
    for number, more in enumerate(({"prompt_logprobs": 1}, {})):  # the second reads the cache
        params = SamplingParams(
            seed=4, n=2, max_tokens=6, logprobs=2, flat_logprobs=True, ignore_eos=True,
            temperature=3.0, **more,
        )  # fmt: skip
        client.add(str(number), prompt, params)
        beside.add_request(str(number), prompt, params, arrival_time=0.0)
        while not client.streams[str(number)].ended:
            client.turn()
        outputs = []
        while beside.has_unfinished_requests():
            outputs += beside.step()
        mine, theirs = outputs[-1], client.streams[str(number)].read()
        assert isinstance(mine, RequestOutput) and isinstance(theirs, RequestOutput)
        for name in names_of(RequestOutput):
            if name != "outputs":
                assert getattr(mine, name) == getattr(theirs, name), name
        for one, other in zip(mine.outputs, theirs.outputs, strict=True):
            for name in names_of(CompletionOutput):
                assert getattr(one, name) == getattr(other, name), name
        assert len(set(dataclasses.astuple(theirs.metrics))) >= len(names_of(RequestMetrics)) - 1
        assert None not in dataclasses.astuple(theirs.metrics)
        assert {one.finish_reason for one in theirs.outputs} & {"stop", "length"}
        assert theirs.num_cached_tokens == 8 * number


def test_each_field_of_a_vector_comes_back() -> None:
    for finished in (True, False):
        data = np.arange(6, dtype=np.float32).reshape(2, 3)
        mine = PoolingRequestOutput("x", PoolingOutput(data), [1, 2], finished)
        report: Any = decode_report(encode(Outputs([report_of(mine, has_text=False)])))
        stream = PoolingStream("x", Prompt(None, [1, 2]))
        stream.take(report.outputs[0])
        theirs = stream.read()
        assert theirs is not None
        np.testing.assert_array_equal(theirs.outputs.data, data)
        assert theirs.outputs.data.dtype == data.dtype
        for name in names_of(PoolingRequestOutput):
            if name != "outputs":
                assert getattr(theirs, name) == getattr(mine, name), name
