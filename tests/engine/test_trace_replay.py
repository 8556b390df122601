"""trace_decode_token_ids: the output is the trace, its log-probabilities are the model's."""

from typing import Any

import numpy as np
import pytest

from jax_engine import LLM, InvalidRequestError, SamplingParams
from jax_engine.engine.requests.masks import Replay, replay_trace
from tests.support.tiny_llama import EOS, tiny_llama

SETTINGS: dict[str, Any] = {
    "block_size": 4,
    "num_gpu_blocks_override": 50,
    "max_model_len": 20,
    "skip_tokenizer_init": True,
}


@pytest.fixture(scope="module", params=[False, True], ids=["waits", "ahead"])
def llm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LLM:
    path, _ = tiny_llama(tmp_path_factory.mktemp("models") / "tiny")
    return LLM(str(path), async_scheduling=request.param, **SETTINGS)


def replayed(llm: LLM, prompt: list[int], **params: Any) -> Any:
    (output,) = llm.generate([prompt], SamplingParams(**params), use_tqdm=False)
    return output.outputs[0]


@pytest.mark.slow
def test_the_output_is_the_trace_and_its_logprobs_are_the_model_s(llm: LLM) -> None:
    prompt, trace = [3, 4, 5], [9, EOS, 11, 9]
    output = replayed(
        llm, prompt, trace_decode_token_ids=trace, logprobs=2, temperature=0.7, top_p=0.5, seed=1
    )
    assert output.token_ids == trace and output.finish_reason == "length"
    scored = llm.score_tokens([prompt + trace], use_tqdm=False)[0][len(prompt) :]
    found = [entry[token].logprob for token, entry in zip(trace, output.logprobs, strict=True)]
    assert found == pytest.approx(scored, abs=1e-4)


def test_a_long_trace_is_cut_to_the_room_there_is(llm: LLM) -> None:
    trace = [5, 6, 7, 8] * 8
    output = replayed(llm, list(range(3, 15)), trace_decode_token_ids=trace)
    assert output.token_ids == trace[:8]


@pytest.mark.slow
def test_what_was_greedy_is_replayed_with_the_same_logprobs(llm: LLM) -> None:
    first = replayed(llm, [7], temperature=0.0, max_tokens=6, ignore_eos=True, logprobs=1)
    again = replayed(llm, [7], trace_decode_token_ids=first.token_ids, logprobs=1)
    assert again.token_ids == first.token_ids
    assert again.cumulative_logprob == pytest.approx(first.cumulative_logprob, abs=1e-4)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"trace_decode_token_ids": []}, "at least 1 id"),
        ({"trace_decode_token_ids": [3], "n": 2}, "n must be left out"),
        ({"trace_decode_token_ids": [3], "prompt_logprobs": 1}, "prompt_logprobs must be left"),
        ({"trace_decode_token_ids": [3], "allowed_token_ids": [3]}, "allowed_token_ids must be"),
        ({"trace_decode_token_ids": [10**6]}, r"trace_decode_token_ids must hold token ids in"),
        ({"trace_decode_token_ids": "ab"}, "trace_decode_token_ids must be a list of integers"),
    ],
)
def test_what_contradicts_a_trace_is_refused(llm: LLM, params: Any, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        replayed(llm, [3], **params)


@pytest.mark.parametrize(("prompt_len", "count"), [(3, 4), (12, 4), (13, 3), (15, 1), (20, 1)])
def test_what_becomes_of_a_request_with_a_trace(prompt_len: int, count: int) -> None:
    """It ends with the trace, or where there is no more room, whatever else it asked for."""
    params = SamplingParams(
        trace_decode_token_ids=[5, 6, 7, 8], max_tokens=2, min_tokens=2, stop=["x"],
        stop_token_ids=[6], logits_processors=[lambda output, logits: logits],
    )  # fmt: skip
    params.best_of = 1
    replay_trace(params, prompt_len, 16)
    assert (params.max_tokens, params.min_tokens, params.ignore_eos) == (count, 0, True)
    assert (params.stop, params.stop_token_ids, params.best_of) == (None, [], None)
    assert params.logits_processors is not None
    (processor,) = params.logits_processors
    logits = np.zeros(9, np.float32)
    drawn: list[int] = []
    for _ in range(count + 1):  # a step that is planned ahead asks once more
        only = processor(drawn, logits)
        (token,) = np.flatnonzero(only > -np.inf)
        drawn.append(int(token))
        assert only[token] == 0.0
    assert drawn == [*[5, 6, 7, 8][:count], 4 + count]


def test_without_a_trace_nothing_changes() -> None:
    params = SamplingParams(max_tokens=3, stop="x")
    replay_trace(params, 1, 16)
    assert params == SamplingParams(max_tokens=3, stop="x")
    assert Replay([7])([7, 7], np.zeros(9, np.float32)).argmax() == 7
