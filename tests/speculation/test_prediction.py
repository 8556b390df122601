"""Where an answer is in the text that it was expected to repeat, and what is guessed from there."""

from typing import Any
from unittest.mock import patch

from hypothesis import example, given
from hypothesis import strategies as st

from jax_engine.core.sequence import Sequence
from jax_engine.speculation import predicted_text
from jax_engine.speculation.predicted_text import LONGEST, PredictedText

MANY = 99
tokens = st.lists(st.integers(0, 2), max_size=20)


def text_of(*token_ids: int) -> PredictedText:
    found = PredictedText.of(token_ids)
    assert found is not None
    return found


def answer(*token_ids: int, prompt: int = 3) -> Sequence:
    return Sequence(0, [*range(90, 90 + prompt), *token_ids], prompt)


def guesses(text: list[int], said: list[int], most: int = MANY) -> list[int]:
    return text_of(*text).guesses(answer(*said), most)


def expected(text: list[int], said: list[int], longest: int) -> int | None:
    """Where the answer is in the text; the rule as a search of all places, token by token."""
    at, inside = 0, False
    for end in range(1, len(said) + 1):
        if at < len(text) and text[at] == said[end - 1]:
            at, inside = at + 1, True
            continue
        found = []
        for place in range(1, len(text) + 1):
            length = 0
            while length < min(end, place, longest) and (
                text[place - 1 - length] == said[end - 1 - length]
            ):
                length += 1
            if length >= 2:
                found.append((-length, (0, place) if place >= at else (1, -place), place))
        inside = bool(found)
        at = min(found)[-1] if found else at
    return at if inside else None


@given(
    text=tokens.filter(bool),
    said=tokens,
    most=st.integers(1, 9),
    longest=st.sampled_from([2, 3, LONGEST]),
)
@example(text=[0, 1, 2], said=[2], most=1, longest=LONGEST)
@example(text=[0, 0, 1, 0, 0, 2], said=[0, 0, 2, 0, 0], most=3, longest=LONGEST)
@example(text=[1, 2, 9, 2, 0, 3, 1, 2, 0, 4], said=[1, 2, 0], most=1, longest=2)
def test_guesses_are_those_of_the_rule(
    text: list[int], said: list[int], most: int, longest: int
) -> None:
    at = expected(text, said, longest)
    with patch.object(predicted_text, "LONGEST", longest):
        found = guesses(text, said, most)
    assert found == ([] if at is None else text[at : at + most])


@given(text=tokens.filter(bool), said=tokens, cuts=st.sets(st.integers(0, 20)))
def test_an_answer_may_be_asked_about_in_between(
    text: list[int], said: list[int], cuts: set[int]
) -> None:
    """Its tokens may have come one by one, several at a time, or all at once."""
    one, seq = text_of(*text), answer()
    for end in sorted(cuts):
        seq.token_ids[3:] = said[:end]
        assert one.guesses(seq, 4) == guesses(text, said[:end], 4)


def test_by_hand() -> None:
    text = [5, 6, 7, 8, 9]
    assert guesses(text, []) == []  # its first token is drawn behind the prompt
    assert guesses(text, [5]) == [6, 7, 8, 9]
    assert guesses(text, [5, 6], most=2) == [7, 8]
    assert guesses(text, text) == []
    assert guesses(text, [1]) == [] and guesses(text, [6]) == []
    assert guesses(text, [1, 5]) == [6, 7, 8, 9]  # something was put before it
    assert guesses(text, [5, 6, 1]) == []
    assert guesses(text, [5, 6, 1, 7]) == [8, 9]  # put in between
    assert guesses(text, [5, 6, 1, 8]) == []  # in its place: one token says too little
    assert guesses(text, [5, 6, 1, 8, 9]) == []  # now it is at the end
    assert guesses([*text, 4], [5, 6, 1, 8, 9]) == [4]
    assert guesses(text, [*text, 5, 6]) == [7, 8, 9]  # said again


def test_of_places_that_are_as_good_the_next_one_counts() -> None:
    text = [1, 2, 3, 1, 2, 4, 1, 2, 5]
    assert guesses(text, [1, 2, 3, 9, 1, 2]) == [4, 1, 2, 5]
    assert guesses(text, [1, 2, 3, 1, 2, 4, 9, 1, 2]) == [5]
    assert guesses(text, [*text, 9, 1, 2]) == [5]  # none is behind: the last one
    assert guesses(text, [*text, 9, 3, 1, 2]) == [4, 1, 2, 5]  # but more of it stands there


def test_no_tokens_are_no_text() -> None:
    assert PredictedText.of([]) is None


def after(text: PredictedText, seq: Sequence, drawn: list[int], most: int = 3) -> None:
    """A step whose drafts are what the text says, of which no more is drawn than this."""
    known, drafts = len(seq.token_ids), text.guesses(seq, most)
    seq.token_ids += drawn
    text.learn(seq, drafts, known)


def test_counts() -> None:
    """The answer has 5, 6 and 8 of the 5 tokens in place. 6 was guessed; 7 was a wrong guess."""
    text, seq = text_of(5, 6, 7, 8, 9), answer(5)
    after(text, seq, [6, 1])
    assert text.counts([seq]) == (1, 3)
    after(text, seq, [7])  # put in between: nothing was guessed
    assert text.counts([seq]) == (1, 2)
    after(text, seq, [8, 9])  # both were guessed, and right
    assert text.counts([seq]) == (3, 0)
    after(text, seq, [5, 6])
    after(text, seq, [7, 8])  # said twice: guessed anew, and no more of the text than all
    assert text.counts([seq]) == (5, 0)


def test_what_ends_within_guesses_counts_as_far_as_it_came() -> None:
    text, seq = text_of(5, 6, 7, 8, 9), answer(5)
    after(text, seq, [6, 7])  # 7 ended it, as a stop token does
    assert text.counts([seq]) == (2, 2)


def test_guesses_of_others_do_not_count() -> None:
    """A drafter guessed what the text would have said, too: but nobody had asked the text."""
    text, seq = text_of(5, 6, 7), answer(1)
    assert text.guesses(seq, 3) == []
    known = len(seq.token_ids)
    seq.token_ids += [5, 6]
    text.learn(seq, [5, 6], known)
    assert text.counts([seq]) == (0, 1)
    assert text.guesses(seq, 3) == [7]
    for _ in range(2):  # a step later nothing is under way
        text.learn(seq, [], len(seq.token_ids))
    seq.token_ids += [7]
    text.learn(seq, [7], len(seq.token_ids) - 1)
    assert text.counts([seq]) == (0, 0)


def test_each_sequence_has_a_place_of_its_own() -> None:
    text = text_of(5, 6, 7, 8)
    one, other = answer(5), Sequence(1, [90, 91, 92, 1], 3)
    assert text.guesses(one, 3) == [6, 7, 8] and text.guesses(other, 3) == []
    other.token_ids += [7, 8, 5, 6]
    assert text.guesses(other, 3) == [7, 8]
    assert text.counts([one, other]) == (0, 3 + 0)
    nobody: Any = []
    assert text.counts(nobody) == (0, 0)
