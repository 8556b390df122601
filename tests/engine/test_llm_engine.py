"""The engine's API on token ids: outputs, errors, aborts, best_of, log-probabilities."""

import jax
import numpy as np
import pytest

from jax_engine import (
    LLM,
    ConfigError,
    InvalidRequestError,
    ModelNotFoundError,
    OutOfMemoryError,
    RequestOutputKind,
    RequestTooLargeError,
    SamplingParams,
)
from reference import sampling as oracle
from reference.random_numbers import derive_seed
from tests.support.engine_pair import naive_logits
from tests.support.in_process import check_idle, run
from tests.support.tiny_llama import VOCAB

SETTINGS = {"skip_tokenizer_init": True, "block_size": 4, "max_model_len": 40, "max_num_seqs": 8}


@pytest.fixture(scope="module")
def llm(checkpoint):
    return LLM(str(checkpoint[0]), num_gpu_blocks_override=100, **SETTINGS)


def greedy(**changes) -> SamplingParams:
    return SamplingParams(**({"temperature": 0.0, "max_tokens": 6, "ignore_eos": True} | changes))


@pytest.mark.slow
def test_i51_outputs_come_in_the_order_of_the_prompts(llm) -> None:
    """I51: input order, unique ids, counts that add up, whatever finishes first."""
    prompts = [[5, 6, 7], [8], [9, 10], {"prompt_token_ids": [11, 12]}]
    params = [greedy(max_tokens=n) for n in (9, 1, 5, 3)]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    assert [one.prompt_token_ids for one in outputs] == [[5, 6, 7], [8], [9, 10], [11, 12]]
    assert [len(one.outputs[0].token_ids) for one in outputs] == [9, 1, 5, 3]
    assert {one.outputs[0].finish_reason for one in outputs} == {"length"}
    assert len({one.request_id for one in outputs}) == len(prompts)
    assert all(one.finished and one.outputs[0].text == "" for one in outputs)
    metrics = outputs[0].metrics
    assert metrics.arrival_time <= metrics.first_token_time <= metrics.finished_time
    check_idle(llm.llm_engine)


def test_one_prompt_of_token_ids_is_one_prompt(llm) -> None:
    assert len(llm.generate([5, 6, 7], greedy(), use_tqdm=False)) == 1
    assert len(llm.generate(np.array([5, 6, 7]), greedy(), use_tqdm=False)) == 1
    assert len(llm.generate([[5, 6, 7]], greedy(), use_tqdm=False)) == 1
    assert llm.generate([], greedy(), use_tqdm=False) == []


def test_the_same_tokens_alone_and_in_company(llm) -> None:
    """I36 through the API."""
    prompts = [[3 + i, 7, 9, 20 - i] for i in range(8)]
    together = llm.generate(prompts, greedy(max_tokens=12), use_tqdm=False)
    alone = [llm.generate([one], greedy(max_tokens=12), use_tqdm=False)[0] for one in prompts]
    assert [one.outputs[0].token_ids for one in together] == [
        one.outputs[0].token_ids for one in alone
    ]


def test_i37_n_samples_are_n_requests_with_derived_seeds(llm) -> None:
    """I37: n samples with seed s == n single requests with seeds derived from (s, i)."""
    params = {"max_tokens": 8, "ignore_eos": True, "temperature": 1.0}
    prompt = [4, 5, 6, 7, 8, 9]
    several = llm.generate([prompt], SamplingParams(n=3, seed=11, **params), use_tqdm=False)[0]
    seeds = [derive_seed(11, i) for i in range(3)]
    singles = llm.generate(
        [prompt] * 3, [SamplingParams(seed=seed, **params) for seed in seeds], use_tqdm=False
    )
    assert [one.token_ids for one in several.outputs] == [
        one.outputs[0].token_ids for one in singles
    ]
    assert len({tuple(one.token_ids) for one in several.outputs}) == 3


def test_best_of_returns_the_most_probable(llm) -> None:
    params = SamplingParams(n=2, best_of=5, seed=3, temperature=1.0, max_tokens=6, ignore_eos=True)
    best = llm.generate([[4, 5, 6]], params, use_tqdm=False)[0].outputs
    every = SamplingParams(n=5, seed=3, temperature=1.0, max_tokens=6, ignore_eos=True, logprobs=0)
    all_five = llm.generate([[4, 5, 6]], every, use_tqdm=False)[0].outputs
    ranked = sorted(all_five, key=lambda one: -one.cumulative_logprob)
    assert [one.token_ids for one in best] == [one.token_ids for one in ranked[:2]]
    assert [one.index for one in best] == [one.index for one in ranked[:2]]


def test_logprobs_are_the_model_s(llm, checkpoint) -> None:
    prompt = [4, 5, 6]
    output = llm.generate([prompt], greedy(logprobs=2), use_tqdm=False)[0].outputs[0]
    tokens, total = list(prompt), 0.0
    for token, entry in zip(output.token_ids, output.logprobs, strict=True):
        wanted = oracle.log_softmax(naive_logits(checkpoint[1], tokens))
        best = np.argsort(-wanted)[:2].tolist()
        assert list(entry) == best  # greedy: the token itself is the first
        for other in best:
            assert entry[other].logprob == pytest.approx(wanted[other], abs=1e-4)
        assert [one.rank for one in entry.values()] == [1, 2]
        total += entry[token].logprob
        tokens.append(token)
    assert output.cumulative_logprob == pytest.approx(total)


@pytest.mark.slow
def test_stop_token_ids_and_eos_end_a_request(llm) -> None:
    free = llm.generate([[4, 5, 6]], greedy(max_tokens=10), use_tqdm=False)[0].outputs[0]
    stop = free.token_ids[3]
    first = free.token_ids.index(stop)
    ended = llm.generate([[4, 5, 6]], greedy(stop_token_ids=[stop]), use_tqdm=False)[0].outputs[0]
    assert ended.token_ids == free.token_ids[: first + 1]
    assert (ended.finish_reason, ended.stop_reason) == ("stop", stop)
    later = greedy(stop_token_ids=[stop], min_tokens=5)
    forced = llm.generate([[4, 5, 6]], later, use_tqdm=False)[0].outputs[0]
    assert stop not in forced.token_ids[:5]


def test_cumulative_and_final_outputs_of_steps(llm) -> None:
    engine = llm.llm_engine
    engine.add_request("c", [4, 5], greedy(max_tokens=3))
    engine.add_request("f", [4, 5], greedy(max_tokens=3, output_kind=RequestOutputKind.FINAL_ONLY))
    seen = {"c": [], "f": []}
    for output in run(engine):
        seen[output.request_id].append((len(output.outputs[0].token_ids), output.finished))
    assert seen == {"c": [(1, False), (2, False), (3, True)], "f": [(3, True)]}
    assert engine.step() == []


def test_i22_abort_at_any_step_frees_everything(llm) -> None:
    """I22: mid-prefill, mid-decode, after a fork, twice, and an id that never was."""
    engine = llm.llm_engine
    for steps in range(4):
        engine.add_request("a", list(range(3, 20)), SamplingParams(n=3, max_tokens=9, seed=1))
        engine.add_request("b", [4, 5], greedy(max_tokens=2))
        for _ in range(steps):
            engine.step()
        aborted = engine.abort_request(["a", "nobody"])
        assert [one.request_id for one in aborted] == ["a"]
        assert {one.finish_reason for one in aborted[0].outputs} == {"abort"}
        assert engine.abort_request("a") == []
        run(engine)
        check_idle(llm.llm_engine)


BAD_PROMPTS = [
    ([VOCAB], f"in [0, {VOCAB - 1}]"),
    (["a", 1], "list of integers"),
    ("text", "skip_tokenizer_init"),
    ([3] * 40, "39"),
    (None, "must be a string"),
]


@pytest.mark.parametrize(("prompt", "words"), BAD_PROMPTS)
def test_i21_bad_prompts_are_refused_with_words_and_leave_no_trace(llm, prompt, words) -> None:
    """I21: nothing of a refused request stays; the good ones beside it were not started.

    `test_prompts.py` has all kinds of wrong prompts.
    """
    with pytest.raises(InvalidRequestError) as error:
        llm.generate([[4, 5], prompt, [6]], greedy(), use_tqdm=False)
    assert "prompts[1]" in str(error.value)
    assert "prompts[0]" not in str(error.value)
    assert words in str(error.value)
    check_idle(llm.llm_engine)
    assert llm.generate([[4, 5]], greedy(), use_tqdm=False)[0].finished


def test_i21_a_refused_request_disturbs_no_running_one(llm) -> None:
    """I21 while others run."""
    alone = llm.generate([[4, 5, 6]], greedy(max_tokens=8), use_tqdm=False)[0].outputs[0].token_ids
    engine = llm.llm_engine
    engine.add_request("good", [4, 5, 6], greedy(max_tokens=8))
    engine.step()
    for bad in ([], [VOCAB], [3] * 40):
        with pytest.raises(InvalidRequestError):
            engine.add_request("bad", bad, greedy())
    with pytest.raises(RequestTooLargeError, match="9"):
        beams = greedy(n=9, use_beam_search=True)
        engine.add_request("many", [3], beams)
    with pytest.raises(InvalidRequestError, match="already"):
        engine.add_request("good", [3], greedy())
    with pytest.raises(InvalidRequestError, match="priority must be an integer, got 'x'"):
        engine.add_request("bad", [3], greedy(), priority="x")
    with pytest.raises(InvalidRequestError, match="stop_token_ids"):
        engine.add_request("bad", [3], greedy(stop_token_ids=[VOCAB]))
    with pytest.raises(InvalidRequestError, match="logit_bias"):
        engine.add_request("bad", [3], greedy(logit_bias={VOCAB: 1.0}))
    with pytest.raises(InvalidRequestError, match="no tokenizer"):
        engine.add_request("bad", [3], greedy(stop="x"))
    assert run(engine)[-1].outputs[0].token_ids == alone
    check_idle(llm.llm_engine)


def test_params_and_priorities_must_match_the_prompts(llm) -> None:
    with pytest.raises(InvalidRequestError, match="2 prompts"):
        llm.generate([[4], [5]], [greedy()] * 3, use_tqdm=False)
    with pytest.raises(InvalidRequestError, match="priority"):
        llm.generate([[4], [5]], greedy(), priority=[1], use_tqdm=False)
    with pytest.raises(InvalidRequestError, match="SamplingParams"):
        llm.generate([[4]], [{"n": 1}], use_tqdm=False)


def test_a_failing_step_aborts_the_call_and_not_the_engine(llm) -> None:
    """Blocks of the failed step were never written: they must not be found in the prefix cache."""
    prompt = list(range(3, 20))
    worker = llm.llm_engine.worker
    launch = worker.launch

    def fail(*args):
        worker.kv_cache.array.delete()  # what a failure after the donation leaves
        raise RuntimeError("the device is on fire")

    worker.launch = fail
    try:
        with pytest.raises(RuntimeError, match="on fire"):
            llm.generate([prompt], greedy(), use_tqdm=False)
    finally:
        worker.launch = launch
    check_idle(llm.llm_engine)
    after = llm.generate([prompt], greedy(), use_tqdm=False)[0]
    assert after.num_cached_tokens == 0
    llm.llm_engine.reset_prefix_cache()
    again = llm.generate([prompt], greedy(), use_tqdm=False)[0]
    assert after.outputs[0].token_ids == again.outputs[0].token_ids


@pytest.mark.slow
def test_eager_mode_gives_the_same_tokens(checkpoint, llm) -> None:
    eager = LLM(str(checkpoint[0]), num_gpu_blocks_override=20, enforce_eager=True, **SETTINGS)
    mine = eager.generate([[4, 5, 6]], greedy(max_tokens=3), use_tqdm=False)[0]
    compiled = llm.generate([[4, 5, 6]], greedy(max_tokens=3), use_tqdm=False)[0]
    assert mine.outputs[0].token_ids == compiled.outputs[0].token_ids


def test_dummy_weights_are_the_same_every_time(checkpoint) -> None:
    tokens = []
    for seed in (1, 1, 2):
        one = LLM(
            str(checkpoint[0]),
            load_format="dummy",
            seed=seed,
            num_gpu_blocks_override=20,
            **SETTINGS,
        )
        leaves = [np.asarray(x) for x in jax.tree.leaves(one.llm_engine.worker.steps.weights)]
        tokens.append(leaves)
    assert all(np.array_equal(a, b) for a, b in zip(tokens[0], tokens[1], strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(tokens[0], tokens[2], strict=True))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_model_len": 65}, "64"),
        ({"enable_chunked_prefill": False, "max_num_batched_tokens": 8}, "max_model_len"),
    ],
)
def test_a_model_has_so_many_positions(checkpoint, settings, words) -> None:
    """`test_engine_args.py` has settings that are bad whatever the model."""
    with pytest.raises(ConfigError, match=words):
        LLM(str(checkpoint[0]), skip_tokenizer_init=True, **settings)


@pytest.mark.slow
def test_an_engine_too_small_for_one_sequence_says_what_to_change(checkpoint) -> None:
    with pytest.raises(OutOfMemoryError) as error:
        LLM(str(checkpoint[0]), num_gpu_blocks_override=4, **SETTINGS)
    message = str(error.value)
    assert "max_model_len 40 needs 11 KV blocks" in message
    assert "there are 4" in message
    assert "longest that fits is 12 tokens" in message
    assert "num_gpu_blocks_override=11" in message
    fits = LLM(str(checkpoint[0]), num_gpu_blocks_override=11, **SETTINGS)
    assert fits.generate([[3] * 39], greedy(), use_tqdm=False)[0].finished


def test_an_unknown_model_is_said_to_be_unknown(tmp_path) -> None:
    with pytest.raises(ModelNotFoundError, match="no-such"):
        LLM(str(tmp_path / "no-such-folder"))
