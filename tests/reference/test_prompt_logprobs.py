"""Log-probabilities of the prompt: from raw logits, however it was computed."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from reference.sampling import log_softmax
from reference.sequence import SequenceGroup
from tests.reference.test_engine import CROWDED, REQUEST, add, new_engine, sampling_params
from tests.support.reading_model import logits_after
from tests.support.strategies import Request, Settings, requests, settings


def check(group: SequenceGroup) -> None:
    """At position i, the log-probabilities after the i tokens before it; at 0 there are none."""
    noted: Any = group.prompt_logprobs
    assert noted[0] is None and len(noted) == group.prompt_len
    for i in range(1, group.prompt_len):
        wanted = log_softmax(logits_after(group.prompt_token_ids[:i]))
        np.testing.assert_array_equal(noted[i], wanted)


@given(data=st.data(), chosen=settings())
def test_they_are_those_of_the_model_without_a_cache(data: st.DataObject, chosen: Settings) -> None:
    """That holds in chunks, after preemption, with a cached prefix, and for several samples."""
    note(repr(chosen))
    engine = new_engine(chosen)
    asked: dict[str, bool] = {}
    for index in range(data.draw(st.integers(1, 6))):
        request: Request = data.draw(requests(chosen.max_model_len))
        wants = data.draw(st.booleans())
        more = {"prompt_logprobs": 0, "logit_bias": {0: 5.0}} if wants else {}
        if add(engine, f"r{index}", request, sampling_params(request, **more)):
            asked[f"r{index}"] = wants
    for group in engine.run():
        if asked[group.request_id]:
            check(group)
        else:
            assert group.prompt_logprobs is None


@pytest.mark.parametrize("chunk", [2, 24])
def test_each_position_but_the_first_has_those_behind_the_tokens_before_it(chunk: int) -> None:
    """The prompt in one step, and in parts: at its last token, and where a part begins, too."""
    engine = new_engine(replace(CROWDED, max_num_batched_tokens=chunk))
    assert add(engine, "a", REQUEST, sampling_params(REQUEST, prompt_logprobs=1))
    [group] = engine.run()
    check(group)


def test_who_wants_them_finds_nothing_in_the_cache_but_leaves_it_to_others() -> None:
    engine = new_engine(replace(CROWDED, enable_prefix_caching=True))

    def first_start(name: str, **more: Any) -> int:
        assert add(engine, name, REQUEST, sampling_params(REQUEST, n=1, max_tokens=1, **more))
        start = engine.scheduler.schedule().scheduled[0].start
        engine.abort_request(name)
        return start

    engine_with_content = add(engine, "a", REQUEST, sampling_params(REQUEST, prompt_logprobs=1))
    assert engine_with_content and len(engine.run()) == 1
    assert first_start("b") == 4
    assert first_start("c", prompt_logprobs=0) == 0
    assert first_start("d", pooling=SimpleNamespace()) == 0
