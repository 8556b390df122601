"""Log-probabilities of any number of tokens: a distribution, of which the sampler gives the top."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine import LLM, FlatLogprobs, InvalidRequestError, Logprob, SamplingParams
from jax_engine.engine.results import most_probable
from tests.support.tiny_llama import VOCAB, tiny_llama

SETTINGS = {"skip_tokenizer_init": True, "block_size": 4, "max_model_len": 40, "max_num_seqs": 4}


@pytest.fixture(scope="module")
def llm(tmp_path_factory):
    path, _ = tiny_llama(tmp_path_factory.mktemp("models") / "tiny", vocab_size=WIDE)
    return LLM(str(path), **SETTINGS, num_gpu_blocks_override=100, max_logprobs=-1)


WIDE = 96  # more tokens than the sampler gives candidates


def run(llm: LLM, prompt: list[int], **params) -> tuple:
    (output,) = llm.generate([prompt], SamplingParams(max_tokens=4, **params), use_tqdm=False)
    return output, output.outputs[0]


@given(
    prompt=st.lists(st.integers(3, WIDE - 1), min_size=2, max_size=9),
    temperature=st.sampled_from([0.0, 1.0]),
    bias=st.sampled_from([None, {5: 3.0}]),
)
def test_all_of_the_vocabulary_is_a_distribution(llm, prompt, temperature, bias) -> None:
    """Whatever edits the logits: log-probabilities are those of the raw ones."""
    settings = {"temperature": temperature, "seed": 7, "logit_bias": bias, "ignore_eos": True}
    few, all_of = (run(llm, prompt, **settings, logprobs=n)[1] for n in (20, -1))
    assert few.token_ids == all_of.token_ids
    for token, some, whole in zip(few.token_ids, few.logprobs, all_of.logprobs, strict=True):
        assert sorted(whole) == list(range(WIDE)) and next(iter(whole)) == token
        np.testing.assert_allclose(
            sum(np.exp(entry.logprob) for entry in whole.values()), 1.0, atol=1e-5
        )
        assert sorted(entry.rank for entry in whole.values()) == list(range(1, WIDE + 1))
        for one, entry in some.items():
            np.testing.assert_allclose(whole[one].logprob, entry.logprob, atol=1e-5)
            assert whole[one].rank == entry.rank
    assert few.cumulative_logprob == pytest.approx(all_of.cumulative_logprob, abs=1e-4)


@pytest.mark.slow
def test_beside_others_and_in_between(llm) -> None:
    """70 are more than the sampler's 64, and fewer than all; its neighbours get theirs."""
    params = [
        SamplingParams(temperature=0.0, max_tokens=3, logprobs=number, ignore_eos=True)
        for number in (70, None, 2)
    ]
    outputs = llm.generate([[4, 5], [6, 7, 8], [9]], params, use_tqdm=False)
    wide, none, two = (one.outputs[0].logprobs for one in outputs)
    assert [len(entry) for entry in wide] == [70] * 3
    assert none is None and [len(entry) for entry in two] == [2] * 3


def test_of_chosen_tokens(llm) -> None:
    whole = run(llm, [4, 5], temperature=0.0, logprobs=-1)[1].logprobs
    chosen = run(llm, [4, 5], temperature=0.0, logprob_token_ids=[90, 3])[1]
    for token, entry, wanted in zip(chosen.token_ids, chosen.logprobs, whole, strict=True):
        assert list(entry) == list(dict.fromkeys([token, 90, 3]))
        assert entry == {one: wanted[one] for one in entry}


@pytest.mark.parametrize("number", [0, 20, 30, -1])
def test_of_prompts(llm, number) -> None:
    output, _ = run(llm, [4, 5, 6, 7], temperature=0.0, prompt_logprobs=number)
    top = WIDE if number == -1 else number
    assert output.prompt_logprobs[0] is None
    for token, entry in zip(output.prompt_token_ids[1:], output.prompt_logprobs[1:], strict=True):
        assert len(entry) in (top, top + 1) and token in entry
        assert sum(np.exp(one.logprob) for one in entry.values()) <= 1.0 + 1e-5
        if number == -1:
            assert max(entry.values(), key=lambda one: one.logprob).rank == 1


CUTS = [slice(1, 3), slice(2), slice(-2, None), slice(None, None, 2), slice(3, 1)]


def test_flat_ones_are_a_sequence() -> None:
    positions = [None, {3: Logprob(-1.0, 1, "a"), 4: Logprob(-2.0, 2)}, {5: Logprob(-0.5, 3, "c")}]
    flat = FlatLogprobs.of(positions)
    assert list(flat) == positions and flat[-1] == positions[-1]
    assert [list(flat[cut]) for cut in CUTS] == [positions[cut] for cut in CUTS]
    flat = flat[:2]
    assert (len(flat), flat[0], flat[1][4].logprob) == (2, None, -2.0)
    assert flat.token_ids == [3, 4] and flat.start_indices == [0, 0] and flat.end_indices == [0, 2]


def test_equal_logits_come_in_the_order_of_their_ids() -> None:
    assert most_probable(np.array([0.0, 2.0, 1.0, 2.0]), 3) == [1, 3, 2]


@pytest.mark.slow
def test_the_engine_s_limit(tmp_path) -> None:
    path, _ = tiny_llama(tmp_path / "tiny")
    llm = LLM(str(path), **SETTINGS, num_gpu_blocks_override=20, max_logprobs=3)
    for name in ("logprobs", "prompt_logprobs"):
        for number in (4, -1):
            with pytest.raises(InvalidRequestError, match=rf"{name} .*max_logprobs \(3\), got "):
                run(llm, [4], **{name: number})
    assert len(run(llm, [4], logprobs=3, temperature=0.0)[1].logprobs[0]) == 3
    with pytest.raises(InvalidRequestError, match=f"logprob_token_ids .* got {VOCAB}"):
        run(llm, [4], logprob_token_ids=[VOCAB])
