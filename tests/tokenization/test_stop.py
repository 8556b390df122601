"""Stop strings end a text where the oracle ends it, however the text is cut (I50)."""

from itertools import accumulate

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from jax_engine.tokenization.detokenizer import StopChecker
from reference.text import find_stop
from reference.text import shown as shown_of

letters = st.text("ab", max_size=12)


@st.composite
def stop_strings(draw: st.DrawFn, text: str) -> list[str]:
    """Some that are in the text, some that it does not complete."""
    found = st.none()
    if text:
        starts = st.integers(0, len(text) - 1)
        found = st.builds(lambda at, length: text[at : at + length], starts, st.integers(1, 5))
    likely = found.filter(bool) | st.text("ab", min_size=1, max_size=5)
    return draw(st.lists(likely, min_size=1, max_size=3))


@st.composite
def cut_texts(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """Pieces of a text, and stop strings."""
    pieces = draw(st.lists(letters, max_size=8))
    return pieces, draw(stop_strings("".join(pieces)))


@given(cut=cut_texts(), include=st.booleans(), early=st.integers(0, 3))
@example((["ab", "d"], ["ab", "abc"]), False, 1)  # held for the longer one, complete too early
@example((["aba", "ba"], ["aba"]), False, 1)  # begun among what does not count
@example((["ab", "aa"], ["abbb", "bbb"]), False, 0)  # held for the longer one's beginning
@example((["ab", "b"], ["ab", "bbb"]), False, 1)  # complete too early: nothing to hold it for
def test_the_oracle_s_text_however_it_is_cut(
    cut: tuple[list[str], list[str]], include: bool, early: int
) -> None:
    """What the first `early` pieces complete does not count, and nothing is held without need."""
    pieces, stops = cut
    texts = list(accumulate(pieces, initial=""))
    found = find_stop(texts, stops, early)
    event("stopped" if found else "not stopped")
    checker, shown, matched = StopChecker(stops, include), "", None
    for number, piece in enumerate(pieces, 1):
        safe, matched = checker.add(piece, may_end=number > early)
        shown += safe
        if found is None or number < found.num_tokens:
            assert (shown, matched) == (shown_of(texts[number], stops), None)
            continue
        end = found.start + len(found.string) * include
        assert (shown, matched) == (texts[number][:end], found.string)
        break
    if matched is None:
        assert found is None and shown + checker.flush() == texts[-1]
        assert checker.flush() == "", "given out once"


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["Hello<", "/s", "> more"], ["Hello", "", ""]),
        (["Hello<", "/p> ", "x"], ["Hello", "</p> ", "x"]),
    ],
)
def test_by_example(pieces: list[str], expected: list[str]) -> None:
    checker = StopChecker(["</s>"])
    assert [checker.add(piece)[0] for piece in pieces] == expected


def test_nothing_is_held_after_the_end() -> None:
    checker = StopChecker(["abc"])
    assert checker.add("xab") == ("x", None)
    assert checker.add("c more") == ("", "abc")
    assert checker.flush() == ""
