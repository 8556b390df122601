"""Deltas of requests that are aborted amid the outputs of a step, or whose ids come again (I50)."""

from dataclasses import replace

import pytest

from jax_engine import LLM, RequestOutputKind, SamplingParams
from tests.support.in_process import run

DELTA = RequestOutputKind.DELTA
SETTINGS = {"block_size": 4, "max_num_seqs": 8}


@pytest.fixture(scope="module")
def llms(of_bytes):
    """Engines without and with steps planned ahead."""
    return [
        LLM(of_bytes, num_gpu_blocks_override=100, async_scheduling=ahead, **SETTINGS)
        for ahead in (False, True)
    ]


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


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("at", [0, 3])
def test_an_abort_amid_the_outputs_of_a_step_keeps_deltas_in_order(llms, ahead, at) -> None:
    """Requests before and behind the aborted one keep their order; text held back comes last."""
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
    """It does so also when the id is aborted and added again between two steps."""
    engine = llms[0].llm_engine
    params = SamplingParams(temperature=0.0, max_tokens=3, ignore_eos=True, output_kind=DELTA)
    engine.add_request("a", "xyz", params)
    engine.step()
    assert engine.abort_request("a") == []
    engine.add_request("a", "xyz", params)
    reasons = [output.outputs[0].finish_reason for output in run(engine)]
    assert reasons == ["abort", None, None, "length"]
