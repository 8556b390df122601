"""`reset_prefix_cache(reset_running_requests=True)`: KV is computed again, outputs stay (I19)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine import LLM, SamplingParams
from tests.support.in_process import check_idle, run
from tests.support.tiny_llama import tiny_llama

SETTINGS: dict[str, Any] = {"block_size": 4, "max_num_seqs": 8, "skip_tokenizer_init": True}
PROMPTS = [[3, 4, 5, 6, 7, 8, 9], [3, 4, 5, 6, 11], [12]]
PARAMS = [
    SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True, prompt_logprobs=1),
    SamplingParams(n=3, seed=5, max_tokens=9, ignore_eos=True),
    SamplingParams(use_beam_search=True, n=2, temperature=0.0, max_tokens=7, ignore_eos=True),
]


@pytest.fixture(scope="module")
def llms(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[bool, bool], LLM]:
    """Engines with and without steps planned ahead, with many blocks and with few."""
    path, _ = tiny_llama(tmp_path_factory.mktemp("models") / "tiny")
    return {
        (ahead, few): LLM(
            str(path),
            async_scheduling=ahead,
            num_gpu_blocks_override=20 if few else 100,
            preemption_mode="swap",
            **SETTINGS,
        )
        for ahead in (False, True)
        for few in (False, True)
    }


def outputs_of(llm: LLM, resets: set[int]) -> list[Any]:
    """Tokens and reasons of all requests, with resets before these steps."""
    engine = llm.llm_engine
    assert engine.reset_prefix_cache()
    for i, (prompt, params) in enumerate(zip(PROMPTS, PARAMS, strict=True)):
        engine.add_request(str(i), prompt, params)
    found: dict[str, Any] = {}
    step = 0
    while engine.has_unfinished_requests():
        if step in resets:
            assert engine.reset_prefix_cache(reset_running_requests=True)
        for output in engine.step():
            if output.finished:
                tokens = [(one.token_ids, one.finish_reason) for one in output.outputs]
                logprobs = output.prompt_logprobs
                found[output.request_id] = tokens, logprobs and list(map(bool, logprobs))
        step += 1
    check_idle(engine)
    return [found[str(i)] for i in range(len(PROMPTS))]


@pytest.mark.slow
@given(ahead=st.booleans(), few=st.booleans(), resets=st.sets(st.integers(0, 15), max_size=4))
def test_outputs_are_the_same(
    llms: dict[tuple[bool, bool], LLM], ahead: bool, few: bool, resets: set[int]
) -> None:
    assert outputs_of(llms[ahead, few], resets) == outputs_of(llms[False, False], set())


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [False, True])
def test_nothing_is_left_of_what_was_computed(
    llms: dict[tuple[bool, bool], LLM], ahead: bool
) -> None:
    engine = llms[ahead, False].llm_engine
    engine.add_request("a", list(range(3, 20)), PARAMS[0])
    for _ in range(3):
        engine.step()
    assert not engine.reset_prefix_cache(), "while it runs"
    engine.reset_prefix_cache(reset_running_requests=True)
    engine.step()  # with steps planned ahead: that of before, whose tokens count
    engine.add_request("b", list(range(3, 20)), PARAMS[0])
    cached = {output.request_id: output.num_cached_tokens for output in run(engine)}
    assert cached["a"] == 0
