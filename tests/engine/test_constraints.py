"""Allowed ids, bad words, logits processors: masks exact, errors typed, others undisturbed."""

import logging
from copy import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine import LLM, InvalidRequestError, SamplingParams
from jax_engine.engine.requests.masks import ConstraintBuilder
from reference import sampling as oracle
from tests.support.engine_pair import naive_logits
from tests.support.in_process import check_idle
from tests.support.in_process import run as run_all
from tests.support.tiny_llama import EOS, VOCAB

SETTINGS = {"skip_tokenizer_init": True, "block_size": 4, "max_model_len": 40, "max_num_seqs": 8}
PROMPTS = [[4, 5, 6], [7, 8], [9, 10, 11, 12, 13]]


@pytest.fixture(scope="module")
def llm(checkpoint):
    return LLM(str(checkpoint[0]), num_gpu_blocks_override=100, **SETTINGS)


def params(**changes) -> SamplingParams:
    return SamplingParams(**({"temperature": 0.0, "max_tokens": 8, "ignore_eos": True} | changes))


def run(llm, requests, *, bad_words=None):
    """Outputs by request id, of (id, prompt, params) all at once."""
    engine = llm.llm_engine
    for request_id, prompt, one in requests:
        one = copy(one)
        if bad_words and request_id in bad_words:
            one.bad_words_token_ids = bad_words[request_id]
        engine.add_request(request_id, prompt, one)
    done = {one.request_id: one for one in run_all(engine) if one.finished}
    check_idle(engine)
    return done


def tokens(llm, prompt, one, **more) -> list[int]:
    return run(llm, [("one", prompt, one)], **more)["one"].outputs[0].token_ids


def greedy_by_hand(transformer, prompt, count, edit) -> list[int]:
    """Greedy decoding by full passes, with logits edited by `edit(output, logits)`."""
    output = []
    for _ in range(count):
        logits = naive_logits(transformer, prompt + output).astype(np.float64)
        output.append(int(np.argmax(edit(output, logits))))
    return output


@pytest.mark.slow
@given(
    allowed=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=6, unique=True),
    temperature=st.sampled_from([0.0, 1.5]),
    ahead=st.booleans(),
)
def test_only_allowed_tokens_come_and_the_best_of_them(
    llm, checkpoint, allowed, temperature, ahead
):
    """An unconstrained request runs beside it; steps are planned ahead or not."""
    one = params(allowed_token_ids=allowed, temperature=temperature, seed=1)
    free = params()
    llm.llm_engine._pipeline.look_ahead = ahead
    done = run(llm, [("a", PROMPTS[0], one), ("free", PROMPTS[1], free)])
    found = done["a"].outputs[0].token_ids
    assert set(found) <= set(allowed)
    if temperature == 0:
        mask = np.isin(np.arange(VOCAB), allowed)
        edit = lambda output, logits: np.where(mask, logits, -np.inf)  # noqa: E731
        assert found == greedy_by_hand(checkpoint[1], PROMPTS[0], 8, edit)
    assert done["free"].outputs[0].token_ids == tokens(llm, PROMPTS[1], free)


@given(
    words=st.lists(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=3), max_size=4),
    seed=st.integers(0, 50),
    n=st.sampled_from([1, 3]),
)
def test_bad_words_never_appear_in_any_sample(llm, words, seed, n) -> None:
    one = params(temperature=1.0, seed=seed, n=n, max_tokens=24)
    output = run(llm, [("a", PROMPTS[2], one)], bad_words={"a": words})["a"]
    for sample in output.outputs:
        assert len(sample.token_ids) == 24
        text = "," + ",".join(map(str, sample.token_ids)) + ","
        assert not [w for w in words if "," + ",".join(map(str, w)) + "," in text]


def test_a_longer_bad_word_forbids_its_last_token_only_where_it_would_be_completed(
    llm, checkpoint
) -> None:
    free = tokens(llm, PROMPTS[0], params())
    word = free[:3]

    def edit(output, logits):
        if output[-2:] == word[:2]:
            logits[word[2]] = -np.inf
        return logits

    found = tokens(llm, PROMPTS[0], params(), bad_words={"one": [word]})
    assert found == greedy_by_hand(checkpoint[1], PROMPTS[0], 8, edit)
    assert found[:2] == free[:2] and found[2] != free[2]


def test_processors_edit_first_and_see_prompt_and_output(llm, checkpoint) -> None:
    seen = []

    def no_repeats(output, logits):
        logits[output] = -np.inf  # in place: the log-probabilities stay the model's
        return logits

    def note(prompt, output, logits):
        seen.append((list(prompt), list(output), logits.dtype, logits.shape))
        return logits

    one = params(logits_processors=[no_repeats, note], logprobs=1)
    output = run(llm, [("a", PROMPTS[0], one), ("b", PROMPTS[1], params())])["a"].outputs[0]

    def edit(output, logits):
        logits[output] = -np.inf
        return logits

    assert output.token_ids == greedy_by_hand(checkpoint[1], PROMPTS[0], 8, edit)
    assert [(prompt, len(out)) for prompt, out, *_ in seen] == [(PROMPTS[0], i) for i in range(8)]
    assert seen[0][2:] == (np.float32, (VOCAB,))
    raw = oracle.log_softmax(naive_logits(checkpoint[1], PROMPTS[0] + output.token_ids[:3]))
    token = output.token_ids[3]
    assert output.logprobs[3][token].logprob == pytest.approx(raw[token], abs=1e-4)


@pytest.mark.slow
def test_processors_come_before_penalties_and_bias(llm, checkpoint) -> None:
    flat = lambda output, logits: np.zeros_like(logits)  # noqa: E731
    one = params(logits_processors=[flat], logit_bias={9: 1.0}, presence_penalty=2.0)
    assert tokens(llm, PROMPTS[0], one)[:2] == [9, 0]


BROKEN = [
    lambda output, logits: logits[:-1],
    lambda output, logits: np.full(VOCAB, np.nan),
    lambda output, logits: logits + np.inf,
    lambda output, logits: "text",
    lambda output, logits: 1 / len(output[2:]) * logits if len(output) > 1 else logits,
]


@pytest.mark.parametrize("broken", BROKEN)
def test_a_processor_that_fails_ends_its_own_request_only(llm, broken, caplog) -> None:
    alone = tokens(llm, PROMPTS[1], params())
    with caplog.at_level(logging.ERROR, "jax_engine"):
        requests = [("bad", PROMPTS[0], params(logits_processors=[broken]))]
        done = run(llm, [*requests, ("good", PROMPTS[1], params())])
    assert done["bad"].outputs[0].finish_reason == "abort"
    assert done["bad"].outputs[0].stop_reason.startswith("a logits processor raised")
    assert done["good"].outputs[0].token_ids == alone
    assert "request bad" in caplog.text and "Traceback" in caplog.text


def test_a_request_that_may_draw_nothing_is_aborted_and_the_others_go_on(llm, caplog) -> None:
    nothing = lambda output, logits: np.full(VOCAB, -np.inf, np.float32)  # noqa: E731
    requests = [
        ("words", PROMPTS[0], params(allowed_token_ids=[3, 4], n=2, temperature=1.0, seed=1)),
        ("processor", PROMPTS[2], params(logits_processors=[nothing])),
        ("good", PROMPTS[1], params()),
    ]
    bad_words = {"words": [[3, 3], [3, 4], [4, 3], [4, 4]]}
    with caplog.at_level(logging.WARNING, "jax_engine"):
        done = run(llm, requests, bad_words=bad_words)
    assert {one.finish_reason for one in done["words"].outputs} == {"abort"}
    assert [len(one.token_ids) for one in done["words"].outputs] == [1, 1]
    assert done["processor"].outputs[0].token_ids == []
    assert done["good"].outputs[0].token_ids == tokens(llm, PROMPTS[1], params())
    assert "request words is aborted: its constraints allow no token" in caplog.text


@pytest.mark.slow
def test_min_tokens_and_allowed_ids_together(llm) -> None:
    one = params(allowed_token_ids=[EOS, 5], min_tokens=3, ignore_eos=False, max_tokens=20)
    found = tokens(llm, PROMPTS[0], one)
    assert found[:3] == [5, 5, 5] and set(found) <= {EOS, 5}


def test_refused_before_anything_is_allocated(llm) -> None:
    engine = llm.llm_engine
    for bad, words in (
        (params(allowed_token_ids=[VOCAB]), f"allowed_token_ids must hold .* {VOCAB - 1}"),
        (params(bad_words=["a"]), "bad_words need text"),
        (params(allowed_token_ids=[EOS], min_tokens=1), "at least 1 token"),
        (params(allowed_token_ids=[5], stop_token_ids=[5], min_tokens=2), "min_tokens"),
        (params(stop_token_ids=list(range(VOCAB)), min_tokens=1), "min_tokens"),
    ):
        with pytest.raises(InvalidRequestError, match=words):
            engine.add_request("bad", PROMPTS[0], bad)
    one = params(allowed_token_ids=[5])
    one.bad_words_token_ids = [[5]]
    with pytest.raises(InvalidRequestError, match="bad_words"):
        engine.add_request("bad", PROMPTS[0], one)
    check_idle(engine)


def test_constraints_are_built_once_for_each_prompt(llm, monkeypatch) -> None:
    """A bad prompt among them keeps the others from starting."""
    built = []
    build = ConstraintBuilder.build
    monkeypatch.setattr(
        ConstraintBuilder,
        "build",
        lambda self, one, prompt: built.append(one) or build(self, one, prompt),
    )
    one = params(allowed_token_ids=[3, 4])
    outputs = llm.generate(PROMPTS, one, use_tqdm=False)
    assert len(built) == len(outputs) == len(PROMPTS)
    with pytest.raises(InvalidRequestError, match=r"prompts\[1\].*allowed_token_ids"):
        llm.generate(PROMPTS[:2], [one, params(allowed_token_ids=[VOCAB])], use_tqdm=False)
    assert not llm.llm_engine.has_unfinished_requests()


def test_batches_without_constraints_run_the_programs_they_always_ran(llm) -> None:
    steps = llm.llm_engine.worker.steps

    def plain() -> None:
        run(llm, [(str(i), one, params(logprobs=1)) for i, one in enumerate(PROMPTS)])

    plain()
    programs = set(steps._compiled)
    tokens(llm, PROMPTS[0], params(allowed_token_ids=[3]))
    plain()
    assert all(shape.split for shape in set(steps._compiled) - programs)


def test_static_masks_keep_the_step_ahead_and_others_do_not(llm) -> None:
    engine = llm.llm_engine
    engine._pipeline.look_ahead = True
    for one, ahead in (
        (params(allowed_token_ids=[3, 4]), True),
        (params(logits_processors=[lambda output, logits: logits]), False),
    ):
        engine.add_request("a", PROMPTS[0], one)
        for _ in range(3):
            engine.step()
        assert bool(engine._pipeline._flight) is ahead
        engine.abort_request("a")


@pytest.mark.slow
def test_constraints_in_eager_mode(checkpoint) -> None:
    eager = LLM(str(checkpoint[0]), num_gpu_blocks_override=20, enforce_eager=True, **SETTINGS)
    assert set(tokens(eager, PROMPTS[0], params(allowed_token_ids=[3, 4], max_tokens=3))) <= {3, 4}


def test_the_time_of_masks_is_counted(llm) -> None:
    before = llm.llm_engine.stats().guided_seconds
    tokens(llm, PROMPTS[0], params())
    assert llm.llm_engine.stats().guided_seconds == before
    tokens(llm, PROMPTS[0], params(allowed_token_ids=[3]))
    assert llm.llm_engine.stats().guided_seconds > before
