"""Each draw that counts decides whether the next one does."""

from collections.abc import Sequence

from exercises.verification import Answer


def accept(guesses: Sequence[int], drawn: Sequence[int], end: int) -> list[int]:
    taken = [drawn[0]]
    for guess, token in zip(guesses, drawn[1:], strict=True):
        if taken[-1] == end or guess != taken[-1]:
            break
        taken.append(token)
    return taken


ANSWER: Answer = accept
