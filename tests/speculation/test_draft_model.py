"""A draft model's cache: what it computes, and that what it guesses from is never stale.

The target and its draft are stubs that read what their caches hold, so a slot with something else
shows in the guesses.
"""

from typing import Any

import numpy as np
import pytest

from jax_engine import LLMEngine, SamplingParams
from jax_engine.engine.running_requests import request_setup
from jax_engine.speculation.draft_length import StepCosts
from jax_engine.speculation.draft_model import scratch_blocks
from jax_engine.speculation.draft_runner import MOST_DECODES, draft_setup
from jax_engine.speculation.speculator import MAX_DRAFT_TOKENS
from tests.support.builders import small_engine
from tests.support.draft_models import OtherModel, Watch, draft_config
from tests.support.in_process import run as run_all

GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 20, "ignore_eos": True}
SAMPLED: dict[str, Any] = {"temperature": 1.5, "seed": 7, "max_tokens": 20, "ignore_eos": True}
PROMPT = [0, 1, 1, 0, 0, 1, 0, 1, 1]


def run(engine: LLMEngine, *params: SamplingParams, prompt: list[int] = PROMPT) -> list[Any]:
    for i, one in enumerate(params):
        engine.add_request(str(i), {"prompt_token_ids": prompt}, one)
    found = {output.request_id: output for output in run_all(engine)}
    return [[one.token_ids for one in found[str(i)].outputs] for i in range(len(params))]


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("block_size", [1, 2, 3, 4, 16])
@pytest.mark.parametrize("most", [1, 3, 5, 31])
@pytest.mark.parametrize("accepts", [False, True])
def test_its_own_draft_is_always_right(
    accepts: bool, most: int, block_size: int, ahead: bool
) -> None:
    """A step yields k + 1 tokens, whatever lies in blocks of its own and what does not.

    Where the device accepts, a step's guesses are fewer near the end: all before may be right.
    """
    sizes = {"block_size": block_size, "num_gpu_blocks": 160 // block_size}
    params = SamplingParams(**GREEDY)
    plain = small_engine(**sizes)
    draft = {"accepts": accepts}
    engine = small_engine(ahead=ahead, speculation=draft_config(most), draft=draft, **sizes)
    watch = Watch(engine)
    assert run(engine, params) == run(plain, params)
    watch.check_greedy()
    assert engine.stats().num_steps == 1 + -(-19 // (most + 1))
    assert (watch.num_read > 0) == (accepts and ahead and most < 18)


def test_what_is_drawn_with_the_request_s_numbers_is_right_too() -> None:
    """The draft has the same distribution and the same uniform number, so the same token."""
    params = [
        SamplingParams(**SAMPLED | {"top_p": 0.9, "min_p": 0.05, "logit_bias": {0: 1.5}}),
        SamplingParams(**SAMPLED | {"n": 2, "top_k": 2}),
        SamplingParams(**SAMPLED | {"min_tokens": 12, "ignore_eos": False, "logprobs": 2}),
    ]
    steps = {}
    for how in ("greedy", "probabilistic"):
        engine = small_engine(speculation=draft_config(draft_sample_method=how))
        assert run(engine, *params) == run(small_engine(), *params)
        steps[how] = engine.stats().num_steps
    assert steps["probabilistic"] < steps["greedy"] < 20
    engine = small_engine(speculation=draft_config(draft_sample_method="probabilistic"))
    run(engine, params[0])
    assert engine.stats().num_steps == 1 + -(-19 // 6)


def test_another_model_is_wrong_and_changes_nothing() -> None:
    params = [SamplingParams(**GREEDY), SamplingParams(**SAMPLED | {"n": 3})]
    engine = small_engine(speculation=draft_config(), draft={"model": OtherModel()})
    watch = Watch(engine)
    assert run(engine, *params) == run(small_engine(), *params)
    watch.check_greedy(shift=1.0)
    assert len(watch.guesses) > 10


@pytest.mark.parametrize("accepts", [False, True])
def test_who_comes_later_is_guessed_for_from_its_own_prompt(
    accepts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Its prompt is computed first, though the others go on behind steps that are not read."""
    engine = small_engine(ahead=True, speculation=draft_config(3), draft={"accepts": accepts})
    watch = Watch(engine)
    found: dict[str, Any] = {}
    for step in range(60):
        if step in (0, 2, 3, 5):
            prompt = {"prompt_token_ids": [step % 3, *PROMPT]}
            engine.add_request(str(step), prompt, SamplingParams(**GREEDY))
        found |= {one.request_id: one for one in engine.step()}
    assert len(found) == 4 and not engine.has_unfinished_requests()
    watch.check_greedy()
    guessed_for = {tokens[0] for tokens, _ in watch.guesses}
    assert guessed_for == {0, 2} and (watch.num_read > 0) == accepts
    assert "failed" not in caplog.text


@pytest.mark.parametrize("longest", [12, 13, 17, 20])
def test_near_the_end_no_guess_lies_beyond_it(
    longest: int, caplog: pytest.LogCaptureFixture
) -> None:
    """All guesses in flight may be right; the draft model reads no more than it can."""
    draft = {"accepts": True, "max_len": longest}
    engine = small_engine(ahead=True, speculation=draft_config(3), draft=draft)
    watch = Watch(engine)
    assert run(engine, SamplingParams(**GREEDY)) == run(small_engine(), SamplingParams(**GREEDY))
    watch.check_greedy()
    assert "failed" not in caplog.text


@pytest.mark.parametrize("place", ["launch", "launched", "collect", "collected"])
@pytest.mark.parametrize("step", range(1, 9))
def test_guesses_that_cannot_be_read_count_as_wrong(place: str, step: int) -> None:
    """The step that verifies them was launched with them; only its first draw counts.

    What was launched behind them has lost its cache with them, so no slot keeps what it noted.
    """
    draft = {"accepts": True, "model": OtherModel()}
    engine = small_engine(ahead=True, speculation=draft_config(), draft=draft)
    watch = Watch(engine)
    params = [SamplingParams(**SAMPLED), SamplingParams(**SAMPLED | {"seed": 8})]
    plain = run(small_engine(), *params)
    texts = [[*PROMPT, *tokens] for samples in plain for tokens in samples]
    for i, one in enumerate(params):
        engine.add_request(str(i), {"prompt_token_ids": PROMPT}, one)
    found: dict[str, Any] = {}
    number = 0
    while engine.has_unfinished_requests():
        if number == step:
            watch.runner.fail_at = place
        found |= {one.request_id: one for one in engine.step()}
        watch.check_slots(texts)
        number += 1
    told = [[one.token_ids for one in found[str(i)].outputs] for i in range(len(params))]
    assert told == plain
    assert watch.runner.fail_at is None and watch.num_read > 0


def test_a_steady_state_computes_what_is_new() -> None:
    """The prompt once; then the last token, those that were right, and the guesses but the last.

    Behind the end of a block its guesses lie in scratch blocks, and are computed again.
    """
    engine = small_engine(
        speculation=draft_config(4), block_size=64, num_gpu_blocks=4, max_model_len=64
    )
    watch = Watch(engine)
    run(engine, SamplingParams(**GREEDY))
    assert watch.computed == [10, 1, 1, 1, *[2, 1, 1, 1] * 2, 2, 1, 1]
    small = small_engine(speculation=draft_config(4), block_size=4)
    watch = Watch(small)
    run(small, SamplingParams(**GREEDY))
    assert max(watch.computed[1:]) <= 5  # of the last step's: 4 guesses and its own token


def test_nothing_runs_before_the_first_token() -> None:
    engine = small_engine(speculation=draft_config(), max_num_batched_tokens=4)
    watch = Watch(engine)
    engine.add_request("r", {"prompt_token_ids": PROMPT}, SamplingParams(**GREEDY))
    steps = 0
    while not watch.computed:
        engine.step()
        steps += 1
    assert steps == 4 and len(watch.proposed[0][0]) == 10  # three for the prompt


def test_a_long_prompt_is_computed_in_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile others have guesses, and it has none; nor does it rest for that."""
    monkeypatch.setattr(StepCosts, "learn", lambda *_: None)  # how fast this machine is
    long = [0, 1, 1] * 9
    engine = small_engine(
        speculation=draft_config(3, enable_adaptive_verification=True), draft={"budget": 12}
    )
    watch = Watch(engine)
    params = SamplingParams(**GREEDY | {"max_tokens": 12})
    engine.add_request("long", {"prompt_token_ids": long}, params)
    engine.add_request("short", {"prompt_token_ids": [1]}, params)
    found = {output.request_id: output for output in run_all(engine)}
    plain = small_engine()
    assert [found["long"].outputs[0].token_ids] == run(plain, params, prompt=long)[0]
    assert [found["short"].outputs[0].token_ids] == run(plain, params, prompt=[1])[0]
    of_long = [guesses for tokens, guesses in watch.proposed if tokens[:3] == [0, 1, 1]]
    waits = of_long.index(next(guesses for guesses in of_long if guesses))
    assert 2 <= waits <= 4 and of_long[:waits] == [None] * waits
    assert max(watch.computed) == 12
    watch.check_greedy()


def test_two_samples_compute_their_prompt_once() -> None:
    engine = small_engine(speculation=draft_config(2), block_size=3, num_gpu_blocks=60)
    watch = Watch(engine)  # 9 tokens of the prompt fill 3 blocks, which the samples share
    run(engine, SamplingParams(**SAMPLED | {"n": 3}))
    assert watch.computed[0] == 9 + 3


def test_where_samples_share_their_last_block_nothing_is_guessed() -> None:
    """They would write different tokens into it; the next step gives each its own."""
    engine = small_engine(speculation=draft_config(2), block_size=4)
    watch = Watch(engine)
    assert run(engine, SamplingParams(**SAMPLED | {"n": 3})) == run(
        small_engine(), SamplingParams(**SAMPLED | {"n": 3})
    )
    assert [found for _, found in watch.proposed[:3]] == [None] * 3
    assert all(watch.proposed[i][1] for i in range(3, 6))
    watch.check_greedy()


@pytest.mark.parametrize("longest", [1, 9, 10, 13, 20, 29])
def test_beyond_its_own_length_it_guesses_nothing(longest: int) -> None:
    """The last guess is drawn, and not read: a text of 10 tokens and a guess need 10 places."""
    engine = small_engine(speculation=draft_config(4), draft={"max_len": longest})
    watch = Watch(engine)
    params = SamplingParams(**GREEDY)
    assert run(engine, params) == run(small_engine(), params)
    watch.check_greedy()
    for tokens, found in watch.proposed:
        most = min(4, longest + 1 - len(tokens), 29 - 1 - len(tokens))
        assert found is not None and len(found) == max(0, most)
    assert any(found for _, found in watch.proposed) == (longest >= 10)


@pytest.mark.parametrize("after", [0, 1, 4, 7])
def test_a_draft_model_that_fails_begins_anew(after: int, caplog: pytest.LogCaptureFixture) -> None:
    engine = small_engine(speculation=draft_config(3))
    watch = Watch(engine)
    watch.fail_after = after
    params = SamplingParams(**GREEDY)
    assert run(engine, params) == run(small_engine(), params)
    assert "the drafter failed: the step has no guesses" in caplog.text
    watch.check_greedy()
    assert watch.guesses
    computed = [count for count in watch.computed if count > 5]
    assert len(computed) == (1 if after == 0 else 2)  # its whole text, twice


@pytest.mark.parametrize("place", ["launch", "launched", "collect", "collected"])
def test_its_runner_may_fail_anywhere(place: str) -> None:
    engine = small_engine(speculation=draft_config(3))
    watch = Watch(engine)
    engine.add_request("r", {"prompt_token_ids": PROMPT}, SamplingParams(**GREEDY))
    for _ in range(3):
        engine.step()
    watch.runner.fail_at = place
    (output,) = [one for one in run_all(engine) if one.finished]
    assert watch.runner.fail_at is None
    assert [output.outputs[0].token_ids] == run(small_engine(), SamplingParams(**GREEDY))[0]
    watch.check_greedy()


def test_an_interrupt_in_it_ends_all_and_leaves_nothing() -> None:
    engine = small_engine(speculation=draft_config(3))
    watch = Watch(engine)
    engine.add_request("r", {"prompt_token_ids": PROMPT}, SamplingParams(**GREEDY))
    for _ in range(2):
        engine.step()
    collect = watch.runner.collect

    def interrupted(ticket: Any) -> Any:
        watch.runner.collect = collect
        raise KeyboardInterrupt

    watch.runner.collect = interrupted
    with pytest.raises(KeyboardInterrupt):
        while True:
            engine.step()
    assert not engine.has_unfinished_requests()
    params = SamplingParams(**GREEDY)
    assert run(engine, params) == run(small_engine(), params)
    watch.check_greedy()


def test_blocks_that_are_reset_are_computed_anew() -> None:
    """Other tokens come into blocks of the same numbers."""
    engine = small_engine(speculation=draft_config(3))
    watch = Watch(engine)
    params = SamplingParams(**GREEDY)
    for prompt in (PROMPT, [1, 0, 0, 0, 1, 1]):
        assert run(engine, params, prompt=prompt) == run(small_engine(), params, prompt=prompt)
        assert engine.reset_prefix_cache()
    engine.add_request("r", {"prompt_token_ids": PROMPT}, params)
    for _ in range(3):
        engine.step()
        engine.reset_prefix_cache(reset_running_requests=True)
    (output,) = [one for one in run_all(engine) if one.finished]
    assert [output.outputs[0].token_ids] == run(small_engine(), params)[0]
    watch.check_greedy()


def test_a_prompt_that_is_cached_is_cached_for_the_draft_too() -> None:
    engine = small_engine(speculation=draft_config(3), block_size=2)
    params = SamplingParams(**GREEDY)
    run(engine, params)
    watch = Watch(engine)
    run(engine, params)
    assert watch.computed[0] == 2  # 8 of 9 tokens, and the token behind the prompt


def test_a_text_that_is_all_there_still_draws() -> None:
    """Without a prefix cache the same blocks are taken again, and hold what they held."""
    engine = small_engine(speculation=draft_config(3), enable_prefix_caching=False)
    watch = Watch(engine)
    params = SamplingParams(**GREEDY)
    found = [run(engine, params) for _ in range(3)]
    assert found[0] == found[1] == found[2] == run(small_engine(), params)
    watch.check_greedy()
    assert engine.stats().num_steps == 3 * 6
    assert [count for count in watch.computed if count > 5] == [10]


def test_salts_share_nothing() -> None:
    """How fast an answer comes would tell who of another salt has asked the same."""
    engine = small_engine(speculation=draft_config(3), enable_prefix_caching=False)
    watch = Watch(engine)
    for salt in (None, "a", "a", "b"):
        prompt: Any = {"prompt_token_ids": PROMPT, "cache_salt": salt}
        engine.add_request("r", prompt, SamplingParams(**GREEDY))
        run_all(engine)
    assert [count for count in watch.computed if count > 5] == [10, 10, 10]


def test_rows_drop_out_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    """Each takes up its own guess of the step before."""
    params = [
        SamplingParams(**GREEDY | {"num_speculative_tokens": most}) for most in (1, 3, 5, 2, 4)
    ]
    engine = small_engine(speculation=draft_config(5), num_gpu_blocks=80)
    watch = Watch(engine)
    prompts = [[*PROMPT, i % 2, i // 2] for i in range(5)]
    for i, one in enumerate(params):
        engine.add_request(str(i), {"prompt_token_ids": prompts[i]}, one)
    run_all(engine)
    watch.check_greedy()
    assert {len(found) for _, found in watch.guesses} == {1, 2, 3, 4, 5} and not caplog.records


def test_samples_in_parts_are_one_request(caplog: pytest.LogCaptureFixture) -> None:
    """Two of five run at a time; between two parts the draft has forgotten their request."""
    params = SamplingParams(**SAMPLED | {"n": 5})
    engine = small_engine(speculation=draft_config(3), max_num_seqs=2)
    watch = Watch(engine)
    assert run(engine, params) == run(small_engine(max_num_seqs=2), params)
    watch.check_greedy()
    assert len(watch.guesses) > 15 and not caplog.records


def test_what_lies_behind_a_lost_block_is_computed_too(caplog: pytest.LogCaptureFixture) -> None:
    engine = small_engine(speculation=draft_config(3), block_size=2)
    watch = Watch(engine)
    engine.add_request("r", {"prompt_token_ids": PROMPT}, SamplingParams(**GREEDY))
    for _ in range(3):
        engine.step()
    (table,) = engine.scheduler.block_manager.tables.values()
    lost = table.ids[1]
    watch.drafter._cache._slots[lost] = 0
    watch.runner.memory.gpu[:, :, lost] = np.nan
    before = len(watch.computed)
    run_all(engine)
    watch.check_greedy()
    assert watch.computed[before] >= len(PROMPT) - 2 and not caplog.records


@pytest.mark.slow
def test_ended_requests_are_forgotten() -> None:
    engine = small_engine(speculation=draft_config(2))
    watch = Watch(engine)
    for i in range(200):
        params = SamplingParams(max_tokens=4, ignore_eos=True, seed=i, n=1 + i % 2)
        engine.add_request(str(i), {"prompt_token_ids": [i % 3, 1, 1]}, params)
        while len(engine.scheduler.seq_ids) >= 4:
            engine.step()
        if i % 7 == 0:
            engine.abort_request(str(i))
    run_all(engine)
    run(engine, SamplingParams(**GREEDY))
    drafter = watch.drafter
    assert len(drafter._hashes) <= 1 and len(drafter._numbers) <= 1
    assert len(watch.runner.setups) <= 9 and len(drafter._runner._open) <= 1
    assert len(watch.speculator._setups) <= 1


@pytest.mark.parametrize("greedy", [True, False])
def test_what_the_draft_is_told_of_a_request(greedy: bool) -> None:
    """Its tokens are drawn; log-probabilities and penalties are the target's."""
    params = SamplingParams(
        n=2, temperature=0.7, seed=3, logprobs=2, prompt_logprobs=1, min_tokens=4,
        repetition_penalty=1.2, logit_bias={1: 2.0, 40: 1.0},
    )  # fmt: skip
    setup = request_setup(5, PROMPT, params, 3, frozenset({2, 41}))
    told = draft_setup(setup, greedy=greedy, vocab_size=31)
    assert told.number == 5 and told.prompt_token_ids == PROMPT
    assert told.bias[0].tolist() == [1] and told.forbidden[0].tolist() == [2]
    assert told.edits_logits and told.min_tokens == 4
    assert not (told.has_penalties or told.wants_logprobs or told.is_special)
    assert told.prompt_logprobs is None and len(told.rows) == 2
    assert (told.rows == setup.rows).all() == False  # noqa: E712
    plain = SamplingParams(n=2, temperature=0.7, seed=3)
    same = draft_setup(
        request_setup(5, PROMPT, plain, 3, frozenset()), greedy=greedy, vocab_size=31
    )
    assert not same.edits_logits and not same.bias.size


@pytest.mark.parametrize("block_size", [1, 3, 16, 256])
@pytest.mark.parametrize("max_seqs", [1, 4, 40])
@pytest.mark.parametrize("most", [1, 5, 63])
def test_scratch_blocks_are_enough_for_any_step(most: int, max_seqs: int, block_size: int) -> None:
    """No fewer would do, for any number of sequences and any fill of their last blocks."""
    needed = 0
    for count in range(1, min(max_seqs, MAX_DRAFT_TOKENS) + 1):
        each = min(most, MAX_DRAFT_TOKENS // count)
        for filled in range(1, block_size + 1):  # of the last block, without the last token
            positions = filled + each
            needed = max(needed, count * (-(-positions // block_size) - 1))
    assert scratch_blocks(most, MAX_DRAFT_TOKENS, max_seqs, block_size) == needed


@pytest.mark.parametrize("many", [False, True])
def test_a_few_tokens_of_outputs_are_decodes(many: bool) -> None:
    """Therefore no step for prompts is compiled for them."""
    sizes: dict[str, Any] = {"max_model_len": 64, "num_gpu_blocks": 80}
    engine = small_engine(speculation=draft_config(3), draft={"model": OtherModel()}, **sizes)
    watch = Watch(engine)
    steps: list[Any] = []
    launch = watch._launch
    watch._launch = lambda step: steps.append(step) or launch(step)
    params = SamplingParams(**SAMPLED | {"n": 3, "max_tokens": 40})
    engine.add_request("r", {"prompt_token_ids": PROMPT}, params)
    while engine.has_unfinished_requests():
        if many and engine.stats().num_steps == 20:  # about 20 tokens each are to be computed anew
            watch.drafter._cache._slots[:] = 0
        engine.step()
    watch.check_greedy(shift=1.0)
    in_outputs = [step for step in steps if all(row.start >= len(PROMPT) for row in step.rows)]
    for step in steps:
        few = step in in_outputs and sum(len(row.tokens) for row in step.rows) <= MOST_DECODES
        for row in step.rows:
            assert row.num_draft == (len(row.tokens) - 1 if few else 0) and row.history is None
    assert any(row.num_draft for step in steps for row in step.rows)
