"""Entries of bias, forbidden tokens and history: which rows they name, and when they are made."""

import numpy as np

from jax_engine.step import RequestSetup, Row
from jax_engine.worker.step_plan import sparse_entries

BIAS = np.array([[5, 6], [50, 60]], np.int32)
FORBIDDEN = np.array([[1], [-7]], np.int32)
NOTHING = np.zeros((2, 0), np.int32)


def setup(**changes: object) -> RequestSetup:
    """The setup of a request with a prompt of three tokens."""
    given = {"bias": NOTHING, "forbidden": FORBIDDEN, "edits_logits": True} | changes
    return RequestSetup(0, [8, 8, 8], np.zeros((1, 1), np.int32), **given)  # type: ignore[arg-type]


type Drawn = tuple[Row, list[int]]


def row(end: int, num_samples: int = 1, history: list[int] | None = None) -> Drawn:
    """A row with so many samples behind its only token."""
    return Row(0, 0, end - 1, [4], history), [end] * num_samples


def entries(*samplers: tuple[Drawn, RequestSetup]) -> tuple[list[list[int]], list[list[int]]]:
    """Sparse entries of these rows, with samples at these positions."""
    samples = [
        (i, position, setup)
        for i, ((_, positions), setup) in enumerate(samplers)
        for position in positions
    ]
    bias, history = sparse_entries(
        [row for (row, _), _ in samplers],
        [setup for *_, setup in samples],
        np.array([i for i, *_ in samples], int),
        np.array([position for _, position, _ in samples], int),
    )
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
    """A prompt of three tokens and a minimum of two forbid at the draws behind 3 and 4 tokens."""
    waits = setup(min_tokens=2)
    for end, is_early in [(3, True), (4, True), (5, False), (6, False)]:
        assert entries((row(end), waits)) == ([[0, 1, -7]] * is_early, [])
    found = entries((row(3, 2), waits), (row(4), setup(min_tokens=2, bias=BIAS)))
    assert found[0] == [[0, 1, -7], [1, 1, -7], [2, 5, 50], [2, 6, 60], [2, 1, -7]]


def test_inside_of_a_prompt_there_is_no_output() -> None:
    """So a minimum of one token forbids there what it forbids behind the prompt; none, nothing."""
    inside = [row(end) for end in (1, 2, 3)]
    assert entries(*((one, setup(min_tokens=0)) for one in inside)) == ([], [])
    found = entries(*((one, setup(min_tokens=1)) for one in inside))
    assert found == ([[r, 1, -7] for r in range(3)], [])


def test_history_says_what_is_output() -> None:
    punished = setup(has_penalties=True)
    text = [8, 8, 8, 2, -3]
    found = entries((row(9), setup()), (row(5, 2, text), punished), (row(3, 1, text[:3]), punished))
    one = [[8, 0], [8, 0], [8, 0], [2, 1], [-3, 1]]
    assert found == ([], [[r, *e] for r in (1, 2) for e in one] + [[3, *e] for e in one[:3]])


def test_along_a_row_each_sample_has_its_own_past() -> None:
    """A prompt of three tokens and two guesses behind it; the draw behind each of the last four."""
    text = [8, 8, 8, 2, 6]
    along = Row(0, 0, 1, text[1:], text), [2, 3, 4, 5]
    past = [[8, 0], [8, 0], [8, 0], [2, 1], [6, 1]]
    bias, history = entries((along, setup(has_penalties=True, min_tokens=2)))
    assert bias == [[r, 1, -7] for r in (0, 1, 2)]
    assert history == [[r, *e] for r in range(4) for e in past[: r + 2]]
