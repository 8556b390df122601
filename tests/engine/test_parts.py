"""More samples than can run at once take turns (I37): one request, one output, parts that fit."""

import pytest

from jax_engine import (
    LLM,
    InvalidRequestError,
    RequestOutputKind,
    RequestTooLargeError,
    SamplingParams,
)
from reference.random_numbers import derive_seed
from tests.support.in_process import check_idle, run
from tests.support.tiny_llama import tiny_llama

SETTINGS = {"skip_tokenizer_init": True, "block_size": 4, "max_model_len": 24, "max_num_seqs": 4}
PROMPT = [4, 5, 6, 7, 8, 9]
DRAW = {"max_tokens": 6, "temperature": 1.0, "ignore_eos": True}


@pytest.fixture(scope="module")
def llms(tmp_path_factory):
    """Parts of 4, by max_num_seqs; and of 2, by the pool, with a prefix cache."""
    path, _ = tiny_llama(tmp_path_factory.mktemp("models") / "tiny")
    return [
        LLM(str(path), num_gpu_blocks_override=100, enable_prefix_caching=False, **SETTINGS),
        LLM(str(path), num_gpu_blocks_override=8, enable_prefix_caching=True, **SETTINGS),
    ]


@pytest.fixture(scope="module")
def singles(llms) -> list[list[int]]:
    """What ten single requests with the derived seeds draw."""
    params = [SamplingParams(seed=derive_seed(11, i), **DRAW) for i in range(10)]
    outputs = llms[0].generate([PROMPT] * 10, params, use_tqdm=False)
    return [output.outputs[0].token_ids for output in outputs]


def outputs_of(llm: LLM, params: SamplingParams) -> list:
    """All outputs of one request, step by step; and nothing is left of it (I9)."""
    llm.llm_engine.add_request("r", PROMPT, params)
    outputs = run(llm.llm_engine)
    check_idle(llm.llm_engine)
    return outputs


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 1])
def test_i37_ten_samples_are_ten_requests(llms, singles, which) -> None:
    """I37, whatever the parts are; and the output is that of one request."""
    params = SamplingParams(n=10, seed=11, logprobs=1, prompt_logprobs=1, **DRAW)
    output = outputs_of(llms[which], params)[-1]
    assert [one.token_ids for one in output.outputs] == singles
    assert [one.index for one in output.outputs] == list(range(10))
    assert {one.finish_reason for one in output.outputs} == {"length"}
    assert output.finished and output.num_cached_tokens == 0
    assert output.metrics.first_token_time < output.metrics.finished_time
    for one in output.outputs:
        chosen = [entry[token] for entry, token in zip(one.logprobs, one.token_ids, strict=True)]
        assert one.cumulative_logprob == pytest.approx(sum(x.logprob for x in chosen))
    assert [entry is None for entry in output.prompt_logprobs] == [True] + [False] * 5


@pytest.mark.parametrize("num_steps", range(2, 18))
@pytest.mark.slow
def test_of_an_aborted_best_of_those_without_a_token_are_last(llms, num_steps) -> None:
    """The next part may have begun without one; its sum of log-probabilities is 0."""
    engine = llms[0].llm_engine
    engine.add_request("r", PROMPT, SamplingParams(n=2, best_of=10, seed=3, **DRAW))
    for _ in range(num_steps):
        engine.step()
    [output] = engine.abort_request("r")
    assert len(output.outputs) == 2 and all(one.token_ids for one in output.outputs)
    check_idle(llms[0].llm_engine)


def test_best_of_ranks_the_samples_of_all_parts(llms) -> None:
    every = SamplingParams(n=10, seed=3, logprobs=0, **DRAW)
    ten = outputs_of(llms[0], every)[-1].outputs
    ranked = sorted(ten, key=lambda one: -one.cumulative_logprob)[:3]
    best = outputs_of(llms[0], SamplingParams(n=3, best_of=10, seed=3, **DRAW))[-1].outputs
    assert [(one.index, one.token_ids) for one in best] == [
        (one.index, one.token_ids) for one in ranked
    ]
    assert max(one.index for one in best) >= 4, "an example whose best are not all of one part"


def test_streamed_outputs_go_on_from_part_to_part(llms, singles) -> None:
    """Deltas add up, cumulative outputs grow, and an end is told once."""
    deltas: dict[int, list[int]] = {}
    ends = []
    kind = RequestOutputKind.DELTA
    for output in outputs_of(llms[0], SamplingParams(n=10, seed=11, output_kind=kind, **DRAW)):
        for one in output.outputs:
            assert one.token_ids
            deltas.setdefault(one.index, []).extend(one.token_ids)
            ends += [one.index] if one.finish_reason else []
    assert list(deltas.values()) == singles and ends == list(range(10))
    counts = []
    for output in outputs_of(llms[0], SamplingParams(n=10, seed=11, **DRAW)):
        counts.append(len(output.outputs))
        assert all(one.token_ids for one in output.outputs)
    assert counts == sorted(counts) and set(counts) == {4, 8, 10}


@pytest.mark.parametrize("steps", [0, 3, 6, 7, 9])
def test_i22_no_part_comes_after_an_abort(llms, singles, steps) -> None:
    engine = llms[0].llm_engine
    engine.add_request("r", PROMPT, SamplingParams(n=10, seed=11, **DRAW))
    for _ in range(steps):
        engine.step()
    (output,) = engine.abort_request("r")
    assert output.finished and engine.abort_request("r") == []
    reasons = [one.finish_reason for one in output.outputs]
    assert reasons[-1] == "abort" and set(reasons[:-4]) <= {"length"}
    for one in output.outputs:
        assert one.token_ids == singles[one.index][: len(one.token_ids)]
    check_idle(llms[0].llm_engine)


@pytest.mark.slow
def test_a_processor_that_fails_in_a_later_part_ends_the_request(llms) -> None:
    """It ends that request only. The parts that have ended keep what they have."""
    calls = []

    def fails(output: list[int], logits):
        calls.append(len(output))
        if calls.count(0) > 1:  # the second part's first token
            raise RuntimeError("no more")
        return logits

    params = SamplingParams(n=10, seed=11, logits_processors=[fails], **DRAW)
    (output,) = [one for one in outputs_of(llms[0], params) if one.finished]
    assert [one.finish_reason for one in output.outputs] == ["length"] * 4 + ["abort"]
    assert "no more" in output.outputs[-1].stop_reason


def test_others_have_their_turn(llms, singles) -> None:
    """A request that came before the last parts, and fits beside them, does not wait for them."""
    engine = llms[0].llm_engine
    engine.add_request("many", PROMPT, SamplingParams(n=10, seed=11, **DRAW))
    engine.add_request("later", PROMPT, SamplingParams(seed=derive_seed(11, 3), **DRAW))
    finished = {one.request_id: one for one in run(engine) if one.finished}
    assert [one.token_ids for one in finished["many"].outputs] == singles
    assert finished["later"].outputs[0].token_ids == singles[3]
    check_idle(llms[0].llm_engine)


def test_what_cannot_take_turns_is_refused(llms) -> None:
    """Beams must all fit at once; and there is a most to ask for, as in vLLM."""
    small = llms[1]
    beams = SamplingParams(n=5, use_beam_search=True, temperature=0.0)
    with pytest.raises(RequestTooLargeError, match="asks for 5 beams, max_num_seqs is 4"):
        small.generate(PROMPT, beams, use_tqdm=False)
    with pytest.raises(InvalidRequestError, match="must be at most 16384, got 16385"):
        SamplingParams(n=16385)
    check_idle(small.llm_engine)
