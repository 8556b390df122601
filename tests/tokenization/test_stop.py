"""Stop strings never leak, however the text is cut (I50)."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jax_engine.tokenization.stop import StopChecker

letters = st.text("ab", max_size=40)
stops = st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=3)


def first_stop(text: str, stops: list[str], after: int = 0) -> tuple[int, str] | None:
    """Start and name of the stop string that is complete first; of two, the longer.

    Those that are complete in the first `after` characters do not count.
    """
    for end in range(after + 1, len(text) + 1):
        complete = [one for one in stops if text[:end].endswith(one)]
        if complete:
            longest = max(complete, key=len)
            return end - len(longest), longest
    return None


@given(
    pieces=st.lists(letters, max_size=8),
    stops=stops,
    include=st.booleans(),
    early=st.integers(0, 3),
)
@example(["ab", "d"], ["ab", "abc"], False, 1)  # held for the longer one, complete before it counts
@example(["aba", "ba"], ["aba"], False, 1)  # begun among what does not count
def test_the_same_however_the_text_is_cut(
    pieces: list[str], stops: list[str], include: bool, early: int
) -> None:
    """What the first `early` pieces complete does not count, and nothing of it is lost."""
    checker, shown, matched = StopChecker(stops, include), "", None
    whole = "".join(pieces)
    found = first_stop(whole, stops, len("".join(pieces[:early])))
    final = whole
    if found is not None:
        start, stop = found
        final = whole[: start + len(stop)] if include else whole[:start]
    for number, piece in enumerate(pieces):
        safe, matched = checker.add(piece, may_end=number >= early)
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
