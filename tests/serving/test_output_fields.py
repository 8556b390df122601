"""What a client is given over the link between two processes is what `LLMEngine.step` gives."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from jax_engine import LLMEngine, RequestOutputKind
from jax_engine.engine.requests.prompts import Prompt
from jax_engine.outputs import PoolingOutput, PoolingRequestOutput
from jax_engine.serving.engine_server import messages_of
from jax_engine.serving.messages import Outputs, decode_report, encode
from jax_engine.serving.open_requests import PoolingStream
from tests.engine.test_assembler import FREE, HALVES, LETTERS, PROMPT, news_engine, requests
from tests.support.client_view import Asked, serve
from tests.support.in_process import InProcess
from tests.support.sometimes import saw
from tests.support.through_messages import ThroughMessages
from tests.support.vocabularies import Words

CUMULATIVE, DELTA, FINAL_ONLY = RequestOutputKind
ALL: dict[str, Any] = FREE | {"logprobs": 2, "prompt_logprobs": 1, "flat_logprobs": True, "n": 2}
BEAMS = {
    "num_speculative_tokens": 0, "use_beam_search": True, "n": 2, "temperature": 0.0,
    "logprobs": None, "stop": None,
}  # fmt: skip


@st.composite
def asked_for(draw: st.DrawFn) -> Asked:
    """A request of any kind; most are no search, and are not aborted."""
    given = draw(requests()) | draw(st.sampled_from([{}, {}, BEAMS, {"n": 2, "best_of": 3}]))
    kinds = [CUMULATIVE, FINAL_ONLY] if "best_of" in given else list(RequestOutputKind)
    given["output_kind"] = draw(st.sampled_from(kinds))
    stop, abort_at = given.pop("stop") or (), draw(st.sampled_from([None, None, 1, 3]))
    return Asked(PROMPT, given, (), stop, draw(st.integers(0, 12)), abort_at)


def timed(words: Words) -> LLMEngine:
    """Each step takes a second."""
    engine = news_engine(words)
    engine.clock = lambda: float(engine.stats().num_steps)
    return engine


@given(
    words=st.sampled_from([HALVES, LETTERS]), asked=st.lists(asked_for(), min_size=1, max_size=3)
)
@example(LETTERS, [Asked(PROMPT, ALL | {"output_kind": kind}) for kind in RequestOutputKind])
@example(HALVES, [Asked(PROMPT, ALL | {"output_kind": kind}, abort_at=4) for kind in (DELTA,)])
def test_each_field_of_an_output_comes_back(words: Words, asked: list[Asked]) -> None:
    """Times and log-probabilities included."""
    stops = [list(one.stop) for one in asked]
    mine = serve(InProcess(timed(words)), asked, stops)
    theirs = serve(ThroughMessages(timed(words)), asked, stops)
    for name, one in zip(mine, asked, strict=True):
        if "best_of" in one.given:  # of these there is no stream over the link
            del mine[name][:-1]
        assert mine[name] == theirs[name]
        last = mine[name][-1]
        saw("guesses over the link", last.metrics.num_draft_tokens > 0)
        event(f"{one.given['output_kind']}, {last.outputs[0].finish_reason}")
        event(f"{last.num_cached_tokens} cached, ranked {len(one.given.keys() & {'best_of'})}")
        if last.outputs[0].finish_reason != "abort":
            assert None not in dataclasses.astuple(last.metrics)


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
    assert dataclasses.replace(theirs, outputs=mine.outputs) == mine
