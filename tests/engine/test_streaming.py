"""Deltas and cumulative outputs: two ways to give out the same thing (I50)."""

from copy import deepcopy
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jax_engine import LLM, InvalidRequestError, RequestOutputKind, SamplingParams
from tests.support.byte_tokenizer import VOCAB, save_byte_tokenizer
from tests.support.tiny_llama import tiny_llama

CUMULATIVE, DELTA = RequestOutputKind.CUMULATIVE, RequestOutputKind.DELTA
SETTINGS = {"block_size": 4, "max_num_seqs": 8}


@pytest.fixture(scope="module")
def llms(tmp_path_factory):
    """Without and with steps planned ahead."""
    path, _ = tiny_llama(tmp_path_factory.mktemp("models") / "bytes", vocab_size=VOCAB)
    save_byte_tokenizer(path)
    return [
        LLM(str(path), num_gpu_blocks_override=100, async_scheduling=ahead, **SETTINGS)
        for ahead in (False, True)
    ]


def stream(llm: LLM, prompt: str, params: SamplingParams, *, abort_at: int | None = None) -> list:
    """All outputs of one request, step by step."""
    engine = llm.llm_engine
    engine.add_request("stream", prompt, params)
    outputs, step = [], 0
    while engine.has_unfinished_requests():
        if step == abort_at:
            outputs += engine.abort_request("stream")
        outputs += engine.step()
        step += 1
    return outputs


def joined(deltas: list) -> dict[int, tuple]:
    """What a client has after all deltas: by index, with the last reasons that were given."""
    found: dict[int, tuple] = {}
    for output in deltas:
        for one in output.outputs:
            text, tokens, logprobs, *_ = found.get(one.index, ("", [], [], None, None))
            assert one.token_ids or one.finish_reason, "nothing new"
            found[one.index] = (
                text + one.text,
                tokens + one.token_ids,
                logprobs + (one.logprobs or []),
                one.cumulative_logprob,
                (one.finish_reason, one.stop_reason),
            )
    return found


def whole(output) -> dict[int, tuple]:
    return {
        one.index: (
            one.text,
            one.token_ids,
            one.logprobs or [],
            one.cumulative_logprob,
            (one.finish_reason, one.stop_reason),
        )
        for one in output.outputs
    }


@given(
    ahead=st.booleans(),
    seed=st.integers(0, 1000),
    n=st.integers(1, 3),
    stops=st.lists(st.tuples(st.integers(0, 15), st.integers(1, 4)), max_size=2),
    logprobs=st.sampled_from([None, 0, 2]),
    included=st.booleans(),
    abort_at=st.none() | st.integers(0, 12),
)
@example(True, 3, 3, [(4, 3)], 2, False, None)
@example(False, 3, 1, [(4, 4)], None, False, 5)
def test_i50_deltas_add_up_to_the_final_output(
    llms, ahead, seed, n, stops, logprobs, included, abort_at
) -> None:
    """I50: with stop strings that hold text back, several samples, log-probabilities, aborts."""
    llm = llms[ahead]
    params = SamplingParams(
        n=n, temperature=2.0, seed=seed, max_tokens=16, ignore_eos=True, logprobs=logprobs
    )
    free = llm.generate("Stream", params, use_tqdm=False)[0].outputs[-1].text
    found = [free[start : start + length] for start, length in stops]
    # The beginning of a stop string that never comes is held back to the end.
    stop = [one for one in found if one] + [free[-2:] + "\u0000\u0001"]
    params = replace(params, stop=stop, include_stop_str_in_output=included)
    cumulative = stream(llm, "Stream", params, abort_at=abort_at)
    deltas = stream(llm, "Stream", replace(params, output_kind=DELTA), abort_at=abort_at)
    assert joined(deltas) == whole(cumulative[-1])
    assert [one.finished for one in deltas] == [False] * (len(deltas) - 1) + [True]
    ends = [one.index for output in deltas for one in output.outputs if one.finish_reason]
    assert sorted(ends) == list(range(len(whole(cumulative[-1])))), "each end is told once"


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("at", [0, 3])
def test_an_abort_amid_the_outputs_of_a_step_keeps_deltas_in_order(llms, ahead, at) -> None:
    """Of requests that were looked at, and of those to come; what was held back comes last."""
    engine, names = llms[ahead].llm_engine, ["a", "b", "c"]
    stop = ["\u0000\u0001"]
    params = SamplingParams(temperature=0.0, max_tokens=9, ignore_eos=True, stop=stop)
    wanted = llms[ahead].generate("xyz", params, use_tqdm=False)[0].outputs[0]
    for name in names:
        engine.add_request(name, "xyz", replace(params, output_kind=DELTA))
    received: dict[str, list] = {name: [] for name in names}
    num_steps = 0
    while engine.has_unfinished_requests():
        for output in engine.step():
            received[output.request_id].append(output)
            if num_steps == at:
                for name in ("a", "c"):
                    for end in engine.abort_request(name):
                        received[name].append(end)
        num_steps += 1
    for name, outputs in received.items():
        assert [one.finished for one in outputs] == [False] * (len(outputs) - 1) + [True]
        text, tokens, *_, reasons = joined(outputs)[0]
        assert reasons[0] == ("length" if name == "b" else "abort")
        assert tokens == wanted.token_ids[: len(tokens)] and len(tokens) > at
        assert wanted.text.startswith(text.removesuffix("\ufffd"))
    assert len(joined(received["b"])[0][1]) == 9


def test_an_id_used_again_gets_its_first_end_first(llms) -> None:
    """Also when somebody aborts and adds again between two steps."""
    engine = llms[0].llm_engine
    params = SamplingParams(temperature=0.0, max_tokens=3, ignore_eos=True, output_kind=DELTA)
    engine.add_request("a", "xyz", params)
    engine.step()
    assert engine.abort_request("a") == []
    engine.add_request("a", "xyz", params)
    outputs = []
    while engine.has_unfinished_requests():
        outputs += engine.step()
    reasons = [output.outputs[0].finish_reason for output in outputs]
    assert reasons == ["abort", None, None, "length"]


def test_what_was_given_out_does_not_change(llms) -> None:
    """Neither tokens, log-probabilities nor times."""
    for kind in (CUMULATIVE, DELTA):
        engine = llms[1].llm_engine
        params = SamplingParams(
            n=2, temperature=1.0, seed=1, max_tokens=6, logprobs=1, output_kind=kind
        )
        engine.add_request("a", "xyz", params)
        given, copies = [], []
        while engine.has_unfinished_requests():
            outputs = engine.step()
            given += outputs
            copies += deepcopy(outputs)
            for output in outputs:
                for one in output.outputs:
                    one.text += "!"
        for one in copies:
            for completion in one.outputs:
                completion.text += "!"
        assert given == copies and len(given) > 1


def test_a_prompt_s_log_probabilities_come_with_the_first_delta_only(llms) -> None:
    for llm in llms:
        params = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True, prompt_logprobs=1)
        cumulative = stream(llm, "Stream", params)
        first, *others = stream(llm, "Stream", replace(params, output_kind=DELTA))
        assert first.prompt_logprobs is not None and len(first.prompt_logprobs) == 6
        assert [one.prompt_logprobs for one in cumulative] == [first.prompt_logprobs] * 4
        assert [one.prompt_logprobs for one in others] == [None] * 3


def test_deltas_cannot_take_back_what_they_gave() -> None:
    with pytest.raises(InvalidRequestError, match=r"best_of must be n \(2\)"):
        SamplingParams(n=2, best_of=3, output_kind=DELTA)
    SamplingParams(n=2, best_of=2, output_kind=DELTA)
