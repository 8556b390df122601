"""Samples along one row draw, to the bit, what plain steps of shorter prompts draw there.

These run in the same compiled program: between programs, logits may differ in their last bits.
"""

from typing import Any

import numpy as np
import pytest

from jax_engine import SamplingParams
from jax_engine.engine.running_requests import request_setup
from jax_engine.sampling.masked_steps import ALL_TOKENS, as_booleans, num_words, token_bits
from jax_engine.step import Moves, RequestSetup, Row, Samples, Step, StepResult
from tests.support.builders import Pool, parts_for
from tests.support.tiny_llama import EOS, VOCAB

POOL = Pool(3, 17)
TEXT = [3, 4, 5, 6, 4, 4, 7, 3]
PROMPT_LEN = 5  # behind it stand what may be guesses
INDICES = range(2)
PLACES = [(token, index) for token in range(len(TEXT)) for index in INDICES]
ASKS: dict[str, dict[str, Any]] = {
    "plain": {},
    "edited": {
        "presence_penalty": 1.0, "frequency_penalty": 0.5, "repetition_penalty": 1.5,
        "logit_bias": {5: 3.0}, "min_tokens": 2,
    },
    "shortlist": {"top_k": 9, "top_p": 0.9},
}  # fmt: skip


def setup_of(asks: str, **more: Any) -> RequestSetup:
    params = SamplingParams(**ASKS[asks], n=2, temperature=1.0, logprobs=3, seed=11, **more)
    return request_setup(0, TEXT[:PROMPT_LEN], params, 11, frozenset([EOS]))


def draw(
    setup: RequestSetup,
    end: int,
    places: list[int],
    *,
    allowed: np.ndarray | None = None,
    processed: np.ndarray | None = None,
) -> StepResult:
    """What a fresh worker draws in one row of the first `end` tokens; masked if anything is."""
    worker = parts_for(POOL).worker
    worker.recover()
    row = Row(0, 0, 0, TEXT[:end], TEXT[:end] if setup.has_penalties else None)
    samples = Samples(*map(list, zip(*(PLACES[place] for place in places), strict=True)))
    table = np.arange(worker.capabilities.table_width, dtype=np.int32)[None]
    masked = allowed is not None or processed is not None
    ticket = worker.launch(Step([row], samples, table, Moves([], [], []), [setup], [0], masked))
    if masked:
        worker.sample(ticket, allowed, processed)
    return worker.collect(ticket)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("asks", ASKS)
def test_a_row_draws_at_each_token_what_prompts_that_end_there_draw(
    asks: str, masked: bool
) -> None:
    """Also out of order and for two sequences each: tokens, log-probabilities and their ranks."""
    setup, chance = setup_of(asks), np.random.default_rng(5)
    masks = chance.integers(0, 2**32, (len(PLACES), num_words(VOCAB)), np.uint32) | np.uint32(1)

    def masks_of(places: list[int]) -> np.ndarray | None:
        return masks[places] if masked else None

    plain = []
    for end in range(1, len(TEXT) + 1):  # a fork behind each token, as plain steps have them
        places = [2 * (end - 1) + index for index in INDICES]
        fork = draw(setup, end, places, allowed=masks_of(places))
        plain += [(fork, index) for index in INDICES]
    order = chance.permutation(len(PLACES)).tolist()
    along = draw(setup, len(TEXT), order, allowed=masks_of(order))
    wanted = [plain[place] for place in order]
    assert len({*along.token_ids}) > 3
    assert along.token_ids == [fork.token_ids[i] for fork, i in wanted]
    assert along.logprobs is not None
    for name in ("logprobs", "ranks", "top_token_ids", "top_logprobs"):
        found = getattr(along.logprobs, name)
        np.testing.assert_array_equal(
            found, [getattr(fork.logprobs, name)[i] for fork, i in wanted]
        )


@pytest.mark.parametrize("by", ["allowed", "processed"])
def test_what_binds_one_sample_of_a_row_binds_no_other(by: str) -> None:
    """A mask, or logits of the host's own, that leave one sample one token."""
    setup, order = setup_of("plain"), np.random.default_rng(6).permutation(len(PLACES)).tolist()
    free = np.full((len(order), num_words(VOCAB)), ALL_TOKENS)
    if by == "processed":
        free = np.random.default_rng(7).normal(size=(len(order), VOCAB)).astype(np.float32)
    plain = draw(setup, len(TEXT), order, **{by: free}).token_ids
    assert len({*plain}) > 3
    for at in range(len(order)):
        bound, token = free.copy(), (plain[at] + 1 + at) % VOCAB
        only = token_bits([token], VOCAB)
        bound[at] = only if by == "allowed" else np.where(as_booleans(only, VOCAB), 0.0, -np.inf)
        found = draw(setup, len(TEXT), order, **{by: bound}).token_ids
        assert found == [*plain[:at], token, *plain[at + 1 :]]


def test_prompt_logprobs_are_those_of_samples_that_draw_the_prompt() -> None:
    """Both count positions in one way: by the token of the step that is in front."""
    setup = setup_of("plain", prompt_logprobs=3)
    places = [PLACES.index((token, 1)) for token in range(PROMPT_LEN - 1)]
    following = TEXT[1:PROMPT_LEN]
    only = np.stack([token_bits([token], VOCAB) for token in following])
    found = draw(setup, len(TEXT), places, allowed=only)
    assert found.token_ids == following
    assert found.logprobs is not None and found.prompt is not None
    assert len({*found.logprobs.logprobs}) == len(following), "else a shift would not be seen"
    for name in ("logprobs", "ranks", "top_token_ids", "top_logprobs"):
        of_samples, of_prompt = (getattr(part, name) for part in (found.logprobs, found.prompt))
        of_prompt = of_prompt[: len(following)]
        if of_prompt.ndim == 2:
            columns = min(of_prompt.shape[1], of_samples.shape[1])
            of_samples, of_prompt = of_samples[:, :columns], of_prompt[:, :columns]
        np.testing.assert_allclose(of_samples, of_prompt, rtol=0, atol=1e-5)
