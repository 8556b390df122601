"""Entries of bias, forbidden tokens and history: which rows they name, and when they are made."""

import numpy as np

from jax_engine.step import RequestSetup, Row
from jax_engine.worker.sparse_edits import sparse_entries

BIAS = np.array([[5, 6], [50, 60]], np.int32)
FORBIDDEN = np.array([[1], [-7]], np.int32)
NOTHING = np.zeros((2, 0), np.int32)


def setup(**changes: object) -> RequestSetup:
    """Of a request with a prompt of three tokens."""
    given = {"bias": NOTHING, "forbidden": FORBIDDEN, "edits_logits": True} | changes
    return RequestSetup(0, [8, 8, 8], np.zeros((1, 1), np.int32), **given)  # type: ignore[arg-type]


def row(end: int, num_samples: int = 1, history: list[int] | None = None) -> Row:
    return Row(0, 0, end - 1, [4], num_samples, history=history)


def entries(*samplers: tuple[Row, RequestSetup]) -> tuple[list[list[int]], list[list[int]]]:
    bias, history = sparse_entries([row for row, _ in samplers], [setup for _, setup in samplers])
    for found in (bias, history):
        assert found.dtype == np.int32 and len(found) == 3
    return bias.T.tolist(), history.T.tolist()


def test_each_sample_has_the_bias_of_its_request() -> None:
    plain = setup(edits_logits=False)
    found = entries((row(3, 2), plain), (row(3, 2), setup(bias=BIAS)), (row(9), setup(bias=BIAS)))
    assert found == ([[r, t, 10 * t] for r in (2, 3, 4) for t in (5, 6)], [])
    assert entries((row(3), plain), (row(5), plain)) == ([], [])
    assert entries() == ([], [])


def test_tokens_are_forbidden_until_there_are_enough() -> None:
    """With three tokens of a prompt and a minimum of two, the draws behind 3 and 4 tokens."""
    waits = setup(min_tokens=2)
    for end, is_early in [(3, True), (4, True), (5, False), (6, False)]:
        assert entries((row(end), waits)) == ([[0, 1, -7]] * is_early, [])
    found = entries((row(3, 2), waits), (row(4), setup(min_tokens=2, bias=BIAS)))
    assert found[0] == [[0, 1, -7], [1, 1, -7], [2, 5, 50], [2, 6, 60], [2, 1, -7]]


def test_history_says_what_is_output() -> None:
    punished = setup(has_penalties=True)
    text = [8, 8, 8, 2, -3]
    found = entries((row(9), setup()), (row(5, 2, text), punished), (row(3, 1, text[:3]), punished))
    one = [[8, 0], [8, 0], [8, 0], [2, 1], [-3, 1]]
    assert found == ([], [[r, *e] for r in (1, 2) for e in one] + [[3, *e] for e in one[:3]])
