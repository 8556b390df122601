"""What a client is given over the link between two processes is what `LLMEngine.step` gives."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from jax_engine import LLMEngine, RequestOutputKind, SamplingParams
from jax_engine.engine.prompts import Prompt
from jax_engine.outputs import PoolingOutput, PoolingRequestOutput, RequestOutput
from jax_engine.serving.messages import Outputs, decode_report, encode
from jax_engine.serving.reports import messages_of
from jax_engine.serving.streams import PoolingStream
from tests.engine.test_assembler import FREE, LETTERS, PROMPT, news_engine, requests
from tests.support.through_messages import MessageClient
from tests.support.vocabularies import Words

DELTA, CUMULATIVE = RequestOutputKind.DELTA, RequestOutputKind.CUMULATIVE
RANKED: list[dict[str, Any]] = [
    {},
    {"best_of": 3},
    {"use_beam_search": True, "n": 2, "temperature": 0.0, "logprobs": None, "stop": None},
]


def ticking(words: Words) -> LLMEngine:
    """Each look at its clock is a second later."""
    engine, ticks = news_engine(words), iter(range(1, 1000))
    engine.clock = lambda: float(next(ticks))
    return engine


def here(words: Words, params: list[SamplingParams], abort_at: int | None) -> list[list[Any]]:
    """The outputs of requests that come one after the other, the first of which may be aborted."""
    engine = ticking(words)
    given: list[list[Any]] = [[] for _ in params]
    for number, one in enumerate(params):
        engine.add_request(str(number), PROMPT, one, arrival_time=0.0)
        step = 0
        while engine.has_unfinished_requests():
            if step == abort_at and number == 0:
                given[number] += engine.abort_request("0")
            given[number] += engine.step()
            step += 1
    return given


def there(words: Words, params: list[SamplingParams], abort_at: int | None) -> list[list[Any]]:
    """The same, through messages."""
    engine = ticking(words)
    client = MessageClient(engine, words.tokenizer)
    given: list[list[Any]] = [[] for _ in params]
    for number, one in enumerate(params):
        client.add(str(number), PROMPT, one)
        step = 0
        while not client.streams[str(number)].ended:
            if step == abort_at and number == 0:
                client.abort(["0"])
            client.turn()
            output = client.streams[str(number)].read()
            given[number] += [output] * (output is not None)
            step += 1
    return given


@pytest.mark.parametrize("kind", RequestOutputKind)
@given(
    asked=requests(),
    ranked=st.sampled_from(RANKED),
    abort_at=st.sampled_from([None, None, 1, 3]),
)
@example(FREE | {"n": 2, "logprobs": 2, "prompt_logprobs": 1, "flat_logprobs": True}, {}, None)
@example(FREE | {"n": 2, "logprobs": 2}, {}, 3)
def test_each_field_of_an_output_comes_back(
    kind: RequestOutputKind, asked: dict[str, Any], ranked: dict[str, Any], abort_at: int | None
) -> None:
    """Times and log-probabilities included. The second request finds its prompt in the cache."""
    asked = asked | ranked
    if "best_of" in ranked:
        asked["n"], kind = min(asked["n"], 2), CUMULATIVE if kind is DELTA else kind
    first = SamplingParams(**asked, output_kind=kind)
    second = dataclasses.replace(first, prompt_logprobs=None)
    mine = here(LETTERS, [first, second], abort_at)
    theirs = there(LETTERS, [first, second], abort_at)
    if ranked:  # of these there is no stream over the link: only the end tells who is returned
        mine = [one[-1:] for one in mine]
    assert mine == theirs
    event(f"{mine[0][-1].outputs[0].finish_reason}, ranked: {bool(ranked)}")
    last: RequestOutput = mine[1][-1]
    assert last.num_cached_tokens == 4
    times = dataclasses.astuple(last.metrics)
    grew = any(len(one.token_ids) > 1 for one in last.outputs)
    assert None not in times and len(set(times)) >= 4 + grew, "the last token ends it"


@pytest.mark.parametrize("finished", [True, False])
def test_each_field_of_a_vector_comes_back(finished: bool) -> None:
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    mine = PoolingRequestOutput("x", PoolingOutput(data), [1, 2], finished)
    request: Any = None
    report: Any = decode_report(encode(Outputs([*messages_of([(request, mine)])])))
    stream = PoolingStream("x", Prompt(None, [1, 2]))
    stream.take(report.outputs[0])
    theirs = stream.read()
    assert theirs is not None
    np.testing.assert_array_equal(theirs.outputs.data, data)
    assert theirs.outputs.data.dtype == data.dtype
    for one in dataclasses.fields(PoolingRequestOutput):
        if one.name != "outputs":
            assert getattr(theirs, one.name) == getattr(mine, one.name), one.name
