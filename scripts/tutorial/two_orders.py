"""One sum in two orders, addition by addition: the arithmetic of the scene in "Equal bits".

docs/javascripts/two_orders.js computes the same; a test compares them on many rows.

>>> [total_of(additions(FIRST, parts)).item() for parts in (1, 2, 4)]
[1.0, 3.0, 5.0]
"""

from typing import NamedTuple

import numpy as np

FIRST = np.array([2.0**24, 1, 1, 1, 1, 1, -(2.0**24), 1], np.float32)
"""The row that the scene begins with: that of the figure above it."""
COUNTS = (8, 12, 16)
"""So many numbers a drawn row may have: each can be cut in four equal parts."""
WORKERS = 4
MOST_ROWS = 8
LIMIT = 1e30
"""The largest size of a number that a reader may write: no sum of such ones overflows."""
TOKENS = ("sun", "rain")
"""The sum is the logit of the first."""


class Addition(NamedTuple):
    """`left` + `right`, rounded to `total`; `lost` is the exact sum less `total`.

    Additions of one `step` are made at once. `worker` counts from 0; None merges the parts.
    """

    step: int
    worker: int | None
    left: np.float32
    right: np.float32
    total: np.float32
    lost: np.float32


def drawn(seed: int, count: int) -> np.ndarray:
    """float32 [count], between -4 and 4: thousandths, which float32 has to round."""
    return np.array([_hash(seed * 16 + i) % 8001 - 4000 for i in range(count)], np.float32) / 1000


def _hash(x: int) -> int:
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ x >> shift) * factor % 2**32
    return x ^ x >> 16


def parts_for(rows: int) -> int:
    """How many parts an engine that goes by the shape cuts each row of a step into."""
    return max(1, WORKERS // rows)


def additions(numbers: np.ndarray, parts: int) -> list[Addition]:
    """The sum of float32 [n], in parts of n / parts; each left to right, then their sums."""
    pieces = np.split(numbers, parts)
    made, totals = [], [piece[0] for piece in pieces]
    for step in range(1, len(numbers) // parts):
        for worker, piece in enumerate(pieces):
            made.append(_add(step, worker, totals[worker], piece[step]))
            totals[worker] = made[-1].total
    merged = totals[0]
    for i, total in enumerate(totals[1:]):
        made.append(_add(len(numbers) // parts + i, None, merged, total))
        merged = made[-1].total
    return made


def _add(step: int, worker: int | None, left: np.float32, right: np.float32) -> Addition:
    total = left + right
    small, large = sorted((left, right), key=abs)
    return Addition(step, worker, left, right, total, small - (total - large))  # lost is exact


def total_of(made: list[Addition]) -> np.float32:
    return made[-1].total


def lost_in_all(made: list[Addition]) -> float:
    return sum(one.lost.item() for one in made)


def bits(number: np.float32) -> str:
    """Eight hexadecimal digits."""
    return f"{number.view(np.uint32):08x}"


def other_logit(numbers: np.ndarray) -> np.float32 | None:
    """A second token's logit that lies between two sums of these numbers, if they differ.

    Between neighbouring floats there is none: then it is the larger of them, a tie.
    """
    in_order, by_two, by_four = (total_of(additions(numbers, parts)) for parts in (1, 2, 4))
    another = by_four if by_four != in_order else by_two
    if another == in_order:
        return None
    low, high = sorted((in_order, another))
    middle = np.float32((low.item() + high.item()) / 2)
    return middle if low < middle < high else high


def token(logit: np.float32, other: np.float32) -> str:
    """Argmax of the two. The first of equals wins."""
    return TOKENS[int(other > logit)]


def table() -> str:
    """HTML: the first row in the scene's orders, for a page without JavaScript."""
    other = other_logit(FIRST)
    assert other is not None
    heads = (
        "rows in the step",
        "additions",
        "lost",
        "bits",
        f"token, if “{TOKENS[1]}” has {other:g}",
    )
    lines = ["".join(f"<th>{head}</th>" for head in heads)]
    for rows in range(1, WORKERS):
        made = additions(FIRST, parts_for(rows))
        total = total_of(made)
        sums = "<br>".join(f"{one.left:.9g} + {one.right:.9g} = {one.total:.9g}" for one in made)
        lost = f"{lost_in_all(made):g}"
        cells = (str(rows), sums, lost, bits(total), token(total, other))
        lines.append("".join(f"<td>{cell}</td>" for cell in cells))
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return (
        f"<p>The scene needs JavaScript. Its first row, by shape:</p><table>{body}</table>"
        f"<p>From {WORKERS - 1} rows on the order is left to right. By row, it always is.</p>"
    )
