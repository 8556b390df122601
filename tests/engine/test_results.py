"""What the clients of requests are given, step by step: the oracle's, without a device.

`tests/properties/test_client_view.py` draws such requests for a model that is compiled.
"""

from collections import Counter
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jax_engine import RequestOutputKind, SamplingParams
from jax_engine.engine.engine_core_output import EngineCoreOutput, LogprobLists
from jax_engine.engine.requests.prompts import Prompt
from jax_engine.engine.results import Results
from jax_engine.outputs import RequestMetrics, RequestOutput
from jax_engine.step import SampleLogprobs, StepResult
from tests.support.builders import SETTINGS, pair_without_device, small_engine
from tests.support.client_view import Asked, Oracle, hold
from tests.support.in_process import InProcess, run
from tests.support.reading_model import ReadingModel
from tests.support.strategies import EOS
from tests.support.vocabularies import Words, byte_words

KINDS = list(RequestOutputKind)
# Half characters, so that text is held back; and stop strings that several tokens complete.
VOCABULARIES = [byte_words([b"\xc3", b"\xa9", b""], EOS), byte_words([b"a", b"ba", b""], EOS)]
FREE: dict[str, Any] = {"temperature": 1.0, "seed": 3, "max_tokens": 7, "ignore_eos": True}
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 5}
HOT: dict[str, Any] = {"temperature": 2.0, "max_tokens": 4}
BEAMS: dict[str, Any] = GREEDY | {"use_beam_search": True, "n": 2}
GIVEN: dict[str, list[dict[str, Any]]] = {
    "plain": [FREE, GREEDY, FREE | {"n": 3}, FREE | {"detokenize": False}],
    "log-probabilities": [
        FREE | {"logprobs": 0, "n": 3},
        FREE | {"logprobs": 2, "prompt_logprobs": 0, "skip_special_tokens": False},
        GREEDY | {"prompt_logprobs": 2},
        FREE,
        FREE | {"logprobs": 1, "prompt_logprobs": 1, "detokenize": False},
    ],
    "ends": [
        *(FREE | {"seed": i, "ignore_eos": False, "n": 2} for i in range(3)),
        *(FREE | {"stop_token_ids": [1], "include_stop_str_in_output": i > 0} for i in range(2)),
        FREE | {"stop_token_ids": [0], "min_tokens": 3, "logprobs": 1},
    ],
    "parts": [FREE | {"n": 10, "max_tokens": 2}, FREE],  # 8 run at once
    "best of": [
        FREE | {"best_of": 4, "n": 2},
        FREE | {"best_of": 3, "logprobs": 1, "seed": 8},
        FREE | {"best_of": 4, "n": 2, "seed": 10, "ignore_eos": False} | HOT,  # a long one wins
    ],
    "beams": [BEAMS, BEAMS | {"n": 1, "best_of": 3}, BEAMS | {"prompt_logprobs": 1}],
}
PROMPTS = [[0, 1, 1], [0, 0, 1, 2, 1, 1, 0], [1], [2, 1], [1, 0], [0]]


def may_stop(given: dict[str, Any]) -> bool:
    """Whether it may have stop strings."""
    return "use_beam_search" not in given and given.get("detokenize", True)


def hold_pair(asked: list[Asked], words: Words, *, ahead: bool, **changes: Any) -> None:
    settings = replace(SETTINGS, **changes)
    engine, reference = pair_without_device(settings, ahead=ahead, tokenizer=words.tokenizer)
    model: Any = ReadingModel()
    seen = Counter[str]()
    hold(InProcess(engine), Oracle(reference, model, words), asked, seen)
    assert not seen["rounding decided"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", GIVEN)
def test_outputs(name: str, kind: RequestOutputKind) -> None:
    """Requests share their steps, with stop strings, in chunks, and one step ahead."""
    allowed = kind is not RequestOutputKind.DELTA
    given = [one for one in GIVEN[name] if allowed or one.get("best_of") is None or name == "beams"]
    for (i, words), ahead in product(enumerate(VOCABULARIES), [False, True]):
        cuts = [(0, 2, 2)] * (ahead == (i == 0))
        asked = [
            Asked(prompt, one | {"output_kind": kind}, cuts if may_stop(one) else (), step=i % 2)
            for i, (prompt, one) in enumerate(zip(PROMPTS, given, strict=False))
        ]
        if asked:
            hold_pair(asked, words, ahead=ahead, max_num_batched_tokens=8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", GIVEN)
def test_outputs_of_requests_that_are_aborted(name: str, kind: RequestOutputKind) -> None:
    """Before their first token, behind it, in the middle of a character, or of a stop string."""
    if name == "best of" and kind is RequestOutputKind.DELTA:
        return
    for words, at in zip(VOCABULARIES * 2, [0, 1, 2, 4], strict=True):
        asked = [
            Asked(prompt, one | {"output_kind": kind}, (), ["\u00e9bb"] * may_stop(one),
                  abort_at=at, in_outputs=i % 2 == 1)
            for i, (prompt, one) in enumerate(zip(PROMPTS, GIVEN[name], strict=False))
        ]  # fmt: skip
        hold_pair(asked, words, ahead=at % 2 == 0)


def test_a_prompt_that_is_computed_again_keeps_its_log_probabilities() -> None:
    """Rounding may differ the second time. What an abort leaves without any has none."""
    group: Any = SimpleNamespace(
        prompt_len=4, seqs=[], request_id="a", num_cached_tokens=None, prediction=None
    )
    results = Results(Prompt(None, [1, 0, 1, 1]), SamplingParams(prompt_logprobs=0), group, None)

    def take(start: int, num_tokens: int, row: int, first: float) -> None:
        values, top = np.float32(first) - np.arange(8, dtype=np.float32), np.zeros((8, 1), int)
        prompt = SampleLogprobs(values, np.arange(8), top, top.astype(np.float32))
        item: Any = SimpleNamespace(start=start, num_tokens=num_tokens)
        results.take_prompt(item, 0, row, StepResult([], prompt=prompt))

    take(0, 1, 4, -1.0)
    take(0, 1, 0, -9.0)
    take(1, 1, 6, -1.0)
    lists = results.core_output(RequestMetrics(0.0), finished=False).prompt_logprobs
    assert lists == LogprobLists([0, 1, 1, 0], [0, 1], [-5.0, -7.0], [4, 6])
    take(2, 2, 0, -1.0)
    assert results.core_output(RequestMetrics(0.0), finished=True).prompt_logprobs is None, (
        "given once"
    )


def test_samples_that_wait_for_their_turn_are_not_given_out() -> None:
    """The next part has its first sequence before it has a token."""
    engine = small_engine(max_num_seqs=2)
    engine.add_request("a", [0, 1], SamplingParams(**FREE | {"n": 5, "max_tokens": 2}))
    counts = []
    for output in run(engine):
        assert isinstance(output, RequestOutput) and all(one.token_ids for one in output.outputs)
        counts.append(len(output.outputs))
    assert counts == [2, 2, 4, 4, 5, 5]


def test_the_end_of_a_sample_is_handed_over_once() -> None:
    """Another one goes on: what it gets does not tell again of the one that has ended."""
    engine = small_engine()
    engine.add_request("a", [0, 1], SamplingParams(temperature=1.0, n=2, seed=5, max_tokens=6))
    told = []
    while engine.has_unfinished_requests():
        engine.run_step()
        for _, new in engine.take_updates():
            assert isinstance(new, EngineCoreOutput)
            told.append([(one.index, one.finish_reason) for one in new.outputs])
    assert told == [[(0, "stop"), (1, None)], [(1, "stop")]]


def test_times_and_cached_tokens() -> None:
    """Times are the engine's clock's. Outputs of earlier steps keep the times that they had."""
    engine = small_engine(block_size=2)
    now = iter(range(100))
    engine.clock = lambda: float(next(now))
    params = SamplingParams(**FREE | {"max_tokens": 2})
    engine.add_request("a", [0, 1, 1], params)
    first, last = run(engine)
    assert isinstance(first, RequestOutput) and isinstance(last, RequestOutput)
    assert first.metrics == RequestMetrics(0.0, 2.0, None, 0.0, 1.0) and not first.finished
    assert last.metrics == RequestMetrics(0.0, 2.0, 4.0, 0.0, 1.0, 4.0) and last.finished
    engine.add_request("b", [0, 1, 1], params)
    assert [one.num_cached_tokens for one in run(engine)] == [2, 2]  # type: ignore[union-attr]
    assert (first.num_cached_tokens, last.num_cached_tokens) == (0, 0)
