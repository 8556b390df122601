"""Exercise: which of the drawn tokens count? (speculation)

A step feeds the last token of a sequence and some guesses, and draws a token behind each of them:
`drawn[0]` behind the last token, `drawn[i]` behind the guess `guesses[i - 1]`. So there is one more
draw than there are guesses. A draw counts if all that stands before it is in the text: the guesses
before it must be what was drawn in their places.

Write `accept(guesses, drawn)`: the tokens that count, in order. The sequence may end among them: if
`end` is one of them, nothing behind it counts.

Run it: python -m exercises.verification
"""

from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

from exercises.checking import expect, report, returned
from exercises.variants import given_seed


def accept(guesses: Sequence[int], drawn: Sequence[int], end: int) -> list[int]:
    raise NotImplementedError


Answer = Callable[[Sequence[int], Sequence[int], int], list[int]]


class Numbers(NamedTuple):
    """What a seed changes."""

    end: Annotated[int, range(10, 30)] = 0


def check(answer: Answer = accept, seed: int = 0) -> bool:
    """Print what is wrong with it; True if nothing is."""
    return report(_test, answer, Numbers, seed)


def _test(answer: Answer, numbers: Numbers) -> None:
    end = numbers.end

    def kept(guesses: list[int], drawn: list[int], wanted: list[int], why: str) -> None:
        found = returned(answer(guesses, drawn, end), "accept")
        what = f"tokens that count of {drawn} drawn behind the guesses {guesses}, with end {end}"
        expect(list(found), wanted, f"{what} ({why})")

    kept([], [5], [5], "a plain step: its one draw always counts")
    kept([6, 7, 8], [5, 6, 7, 8], [5], "the first guess is wrong, and what is drawn behind it is")
    kept(
        [6, 7, 8], [6, 7, 9, 4], [6, 7, 9], "9 was drawn behind right guesses; 4 behind a wrong one"
    )
    kept(
        [6, 7, 8], [6, 9, 8, 4], [6, 9], "a guess that is right behind a wrong one is worth nothing"
    )
    kept([6, 7, 8], [6, 7, 8, 9], [6, 7, 8, 9], "all are right: one token more than guesses")
    kept([6, end, 8], [6, end, 8, 9], [6, end], "nothing counts behind the end")
    kept([6], [end, 6], [end], "the end counts, and the guess was another")


if __name__ == "__main__":
    raise SystemExit(not check(seed=given_seed()))
