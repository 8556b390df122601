"""What edits the logits (rules 0 to 3), and what beam search draws from them."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.logits import edit_logits, process
from reference.sampling import NoTokenLeft, candidates, distribution, log_softmax
from tests.reference.test_sampling import VOCABULARY, Params, tokens

words = st.lists(st.integers(0, 7), min_size=1, max_size=3)


@dataclass(frozen=True)
class Constrained(Params):
    logits_processors: Any = None
    allowed_token_ids: list[int] | None = None
    bad_words_token_ids: list[list[int]] | None = None
    guide: Any = None
    stop_token_ids: list[int] = field(default_factory=list)


@given(
    output=tokens,
    allowed=st.none() | st.sets(st.integers(0, 7)).map(list),
    guided=st.none() | st.sets(st.integers(0, 7)),
    bad=st.none() | st.lists(words, max_size=4),
    min_tokens=st.integers(0, 5),
)
def test_a_token_is_forbidden_by_any_of_the_rules(
    output: list[int],
    allowed: list[int] | None,
    guided: set[int] | None,
    bad: list[list[int]] | None,
    min_tokens: int,
) -> None:
    """Rule 3, token by token; what is left has its logit and its bias."""

    def guide(so_far: list[int]) -> set[int] | None:
        assert so_far == output
        return guided

    params = Constrained(
        logit_bias={4: 0.25},
        allowed_token_ids=allowed,
        bad_words_token_ids=bad,
        guide=guide,
        min_tokens=min_tokens,
        stop_token_ids=[6],
    )
    edited = edit_logits(VOCABULARY, params, output_token_ids=output, eos_token_ids={7})
    for token in range(8):
        written = [*output, token]
        forbidden = (
            (allowed is not None and token not in allowed)
            or (guided is not None and token not in guided)
            or any(written[-len(word) :] == word for word in bad or ())
            or (token in (6, 7) and len(output) < min_tokens)
        )
        wanted = -np.inf if forbidden else VOCABULARY[token] + 0.25 * (token == 4)
        assert edited[token] == wanted


def test_processors_come_first_one_after_another_and_cannot_touch_what_they_are_given() -> None:
    """Rule 0: before penalties and bias, in order; both forms; the raw logits stay as they are."""
    calls: list[Any] = []

    def doubles(output: list[int], logits: np.ndarray) -> np.ndarray:
        calls.append(("doubles", list(output)))
        output.append(99)
        logits *= 2
        return logits

    class AddsOne:
        def __call__(self, prompt: list[int], output: list[int], logits: np.ndarray) -> Any:
            calls.append(("adds one", prompt, output))
            prompt.append(99)
            return list(logits + 1)

    logits = np.array([1.0, 2.0, 3.0])
    params = Constrained(
        logits_processors=[doubles, AddsOne()], logit_bias={0: 10.0}, repetition_penalty=2.0
    )
    edited = edit_logits(logits, params, prompt_token_ids=[1], output_token_ids=[2])
    assert calls == [("doubles", [2]), ("adds one", [1, 99], [2])]
    assert edited.tolist() == [13.0, 2.5, 3.5] and logits.tolist() == [1.0, 2.0, 3.0]
    chosen = distribution(
        logits, replace(params, temperature=0.0), prompt_token_ids=[1], output_token_ids=[2]
    )
    assert chosen.tolist() == [1.0, 0.0, 0.0]


def test_candidates_are_the_most_probable_of_the_edited_and_tempered_distribution() -> None:
    logits = np.array([1.0, 3.0, 3.0, 2.0, 0.0])
    for temperature, divisor in ((0.5, 0.5), (0.0, 1.0), (1e-6, 1.0)):
        params = Constrained(temperature=temperature, bad_words_token_ids=[[4]])
        logprobs = log_softmax(np.array([1.0, 3.0, 3.0, 2.0, -np.inf]) / divisor)
        wanted = [(token, logprobs[token]) for token in (1, 2, 3, 0)]
        assert candidates(logits, params, 9) == wanted
        assert candidates(logits, params, 2) == wanted[:2]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_where_all_tokens_are_forbidden_there_is_nothing_to_draw(temperature: float) -> None:
    """The first token, which an argmax of nothing would be, is not drawn either."""
    params = Constrained(temperature=temperature, allowed_token_ids=[1], bad_words_token_ids=[[1]])
    assert candidates(VOCABULARY, params, 9) == []
    with pytest.raises(NoTokenLeft, match="its constraints allow no token"):
        distribution(VOCABULARY, params)


class CannotBeAsked:
    __signature__ = "unknown"

    def __call__(self, output: list[int], logits: np.ndarray) -> np.ndarray:
        return logits + output[0]


def test_a_processor_takes_the_prompt_if_it_has_three_parameters_without_a_default() -> None:
    def one_to_three(output: list[int], logits: np.ndarray, scale: float = 3.0) -> np.ndarray:
        return logits * scale

    assert process(np.ones(2), one_to_three, [7], [4]).tolist() == [3.0, 3.0]
    assert process(np.ones(2), CannotBeAsked(), [7], [4]).tolist() == [5.0, 5.0]
