"""Stop strings never leak, however the text is cut (I50)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine.tokenization.stop import StopChecker

letters = st.text("ab", max_size=40)
stops = st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=3)


def first_stop(text: str, stops: list[str]) -> tuple[int, str] | None:
    """Start and name of the stop string that is complete first; of two, the longer."""
    for end in range(1, len(text) + 1):
        complete = [one for one in stops if text[:end].endswith(one)]
        if complete:
            longest = max(complete, key=len)
            return end - len(longest), longest
    return None


@given(pieces=st.lists(letters, max_size=8), stops=stops, include=st.booleans())
def test_the_same_however_the_text_is_cut(
    pieces: list[str], stops: list[str], include: bool
) -> None:
    checker, shown, matched = StopChecker(stops, include), "", None
    whole = "".join(pieces)
    found = first_stop(whole, stops)
    final = whole
    if found is not None:
        start, stop = found
        final = whole[: start + len(stop)] if include else whole[:start]
    for piece in pieces:
        safe, matched = checker.add(piece)
        shown += safe
        assert final.startswith(shown)
        if matched is not None:
            break
    if matched is None:
        assert checker.flush() == whole[len(shown) :]
        shown = whole
    assert shown == final
    assert matched == (found[1] if found else None)


@given(text=letters, stops=stops)
def test_nothing_is_held_without_need(text: str, stops: list[str]) -> None:
    checker = StopChecker(stops)
    shown, matched = checker.add(text)
    if matched is None:
        held = checker.flush()
        assert shown + held == text
        assert not held or any(one.startswith(held) for one in stops)


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
