"""What a client expects its output to be: guesses come from it, are counted, and stay its own."""

from typing import Any

import pytest

from jax_engine import LLMEngine, SamplingParams
from jax_engine.config.speculative_config import SpeculativeConfig
from jax_engine.core.sequence import Sequence
from jax_engine.outputs import RequestMetrics, RequestOutput
from jax_engine.speculation.predicted_text import PredictedText
from tests.support.builders import small_engine
from tests.support.drafters import speculation
from tests.support.strategies import VOCABULARY

PROMPT = [0, 1, 1, 0, 0, 1, 0, 1]
# Not by the times of steps, so that steps can be counted. The n-grams find nothing: five tokens
# must match.
EXACT: dict[str, Any] = {"num_speculative_tokens": 3, "enable_adaptive_verification": False}
NGRAM = SpeculativeConfig(**EXACT)
METHODS = {
    "ngram": NGRAM,
    "suffix": SpeculativeConfig(method="suffix", **EXACT),
    "custom": speculation(lambda tokens: [], most=3),
}
LONG: dict[str, Any] = {"max_tokens": 24, "temperature": 1.5, "seed": 7, "ignore_eos": True}


def run(engine: LLMEngine, prediction: Any = None, salt: str | None = None, **given: Any) -> Any:
    """The output of a request, the tokens of its samples, and the steps that it took."""
    prompt = {"prompt_token_ids": PROMPT, "prediction": prediction, "cache_salt": salt}
    before = engine.stats().num_steps
    engine.add_request("r", prompt, SamplingParams(**(LONG | given)))
    output: Any = None
    while engine.has_unfinished_requests():
        output = (engine.step() or [output])[-1]
    assert isinstance(output, RequestOutput) and output.finished
    texts = [one.token_ids for one in output.outputs]
    return output, texts, engine.stats().num_steps - before


def counts(metrics: RequestMetrics) -> tuple[int, int]:
    return metrics.num_accepted_prediction_tokens, metrics.num_rejected_prediction_tokens


def other(token: int) -> int:
    return (token + 1) % VOCABULARY


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_a_prediction_that_is_right_saves_steps(method: str, ahead: bool) -> None:
    """The first token comes with the prompt; then each step has 3 guesses and yields 4 tokens. The
    last one is drawn behind a guess: it needs none."""
    _, [text], steps = run(small_engine())
    assert steps == 24
    engine = small_engine(speculation=METHODS[method], ahead=ahead)
    output, [again], steps = run(engine, text)
    assert again == text and steps == 1 + 6
    # 23 tokens: five are drawn behind three right guesses; the last step has two of them
    assert counts(output.metrics) == (3 * 5 + 2, 0)
    assert output.metrics.num_draft_tokens == 3 * 5 + 2


@pytest.mark.parametrize("at", [1, 5, 11, 22])
def test_an_answer_leaves_a_prediction_and_comes_back(at: int) -> None:
    """One token is another one: the answer is in it again two tokens later."""
    _, [text], _ = run(small_engine())
    wrong = [*text[:at], other(text[at]), *text[at + 1 :]]
    output, [again], steps = run(small_engine(speculation=NGRAM), wrong)
    accepted, rejected = counts(output.metrics)
    assert again == text and steps < 24 and accepted > 0 and rejected >= 1
    more = [*text[:at], *[other(text[at])] * 3, *text[at:]]
    _, [again], steps = run(small_engine(speculation=NGRAM), more)
    assert again == text and steps < 24


def test_what_is_looked_at_ends_at_the_longest_sequence() -> None:
    """A million tokens are no more than 40 of them, here."""
    _, [text], _ = run(small_engine())
    output, [again], _ = run(small_engine(speculation=NGRAM), [*text, *[0] * 1_000_000])
    assert again == text and sum(counts(output.metrics)) < 40
    output, [again], _ = run(small_engine(speculation=NGRAM), [0] * 1_000_000)
    assert again == text and counts(output.metrics)[1] <= 40


def test_text_is_tokenised_without_what_is_added_to_texts() -> None:
    letters_alone = {"allowed_token_ids": [0, 1]}
    _, [text], _ = run(small_engine(), **letters_alone)
    letters = "".join(chr(ord("A") + token) for token in text)
    by_ids, by_text = (
        run(small_engine(speculation=NGRAM), one, **letters_alone) for one in (text, letters)
    )
    assert by_ids[1:] == ([text], 7)
    assert by_ids[1:] == by_text[1:] and counts(by_ids[0].metrics) == counts(by_text[0].metrics)


@pytest.mark.parametrize(
    "engine, given",
    [
        ({}, {}),
        ({"speculation": NGRAM}, {"num_speculative_tokens": 0}),
        ({"speculation": NGRAM}, {"logits_processors": [lambda output, logits: logits]}),
    ],
    ids=["an engine without guesses", "a request without guesses", "a processor"],
)
def test_where_nothing_is_guessed_a_prediction_is_nothing(engine: Any, given: Any) -> None:
    output, texts, steps = run(small_engine(**engine), [0, 1, 1], **given)
    assert (texts, steps) == run(small_engine(**engine), **given)[1:]
    assert counts(output.metrics) == (0, 0)


def test_each_sample_has_a_place_of_its_own() -> None:
    """What is counted is of the samples that are returned."""
    plain = run(small_engine(), n=3)[1]
    for text in plain:
        output, texts, _ = run(small_engine(speculation=NGRAM), text, n=3)
        assert texts == plain
        accepted, rejected = counts(output.metrics)
        assert accepted > 0 and 0 <= rejected < 3 * 24
    best = run(small_engine(), n=1, best_of=3)[1]
    output, texts, _ = run(small_engine(speculation=NGRAM), best[0], n=1, best_of=3)
    assert texts == best and counts(output.metrics)[1] == 0


def test_a_prediction_is_not_cached_and_takes_no_block() -> None:
    """Prefix hits are those of an engine without guesses, also where it is the next prompt."""
    secret = [1, 0] * 12
    engine, plain = small_engine(speculation=NGRAM), small_engine()
    for salt in (None, "mine", None):
        output, texts, _ = run(engine, secret, salt=salt)
        same, plainly, _ = run(plain, salt=salt)
        assert texts == plainly and output.num_cached_tokens == same.num_cached_tokens
        assert output.prompt_token_ids == PROMPT
    stats = engine.stats()
    assert stats.num_free_blocks == stats.num_blocks
    found = []
    for one in (engine, plain):
        one.add_request("next", secret, SamplingParams(max_tokens=1))
        while one.has_unfinished_requests():
            found += [output.num_cached_tokens for output in one.step()]
    assert found[0] == found[1]


def test_no_other_request_guesses_from_it() -> None:
    """Suffix decoding keeps outputs of earlier requests, but not the predictions beside them."""
    _, [text], _ = run(small_engine())
    one_token = {"max_tokens": 1, "seed": 1}
    found = []
    for prediction in (None, text):
        engine = small_engine(speculation=METHODS["suffix"])
        run(engine, prediction, **one_token)
        output, [again], _ = run(engine)
        assert again == text
        found.append(output.metrics.num_draft_tokens)
    assert found[0] == found[1]


def test_the_drafter_guesses_where_the_prediction_does_not() -> None:
    """It is asked with the whole sequence, and never while the prediction guesses."""
    _, [text], _ = run(small_engine())
    asked = []

    def guess(tokens: list[int]) -> list[int]:
        asked.append(tokens)
        return text[len(tokens) - len(PROMPT) :]

    predicted: Any = PredictedText.of(text[:9])
    output, [again], steps = run(small_engine(speculation=speculation(guess, most=3)), text[:9])
    assert again == text and steps < 24 and asked
    for tokens in asked:
        assert len(tokens) >= len(PROMPT) + 9
        assert predicted.guesses(Sequence(len(tokens), tokens, len(PROMPT)), 3) == []
    accepted, rejected = counts(output.metrics)
    assert accepted >= 6 and rejected == 0
    assert output.metrics.num_accepted_tokens > accepted


def test_an_aborted_request_tells_what_came_of_it_so_far() -> None:
    _, [text], _ = run(small_engine())
    engine = small_engine(speculation=NGRAM)
    prompt = {"prompt_token_ids": PROMPT, "prediction": text}
    engine.add_request("r", prompt, SamplingParams(**LONG))
    for _ in range(3):
        engine.step()
    [output] = engine.abort_request("r")
    assert isinstance(output, RequestOutput)
    said = len(output.outputs[0].token_ids)
    assert counts(output.metrics) == (6, 24 - said)
