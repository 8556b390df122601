"""A device's columns of a matrix stand for the same numbers as in the whole one."""

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jax_engine.weights.codes import E4M3, INT8, Kind, numbers, row_dtype
from jax_engine.weights.transforms import Columns, Rows, cuts_groups

TABLE = tuple(float(number) for number in range(-8, 8))
KINDS = (
    Kind(TABLE, 32),
    Kind(TABLE, 32, minimums=True, outer=256),
    Kind(INT8, 16, outer=256),
    Kind(E4M3, 128),
    Kind(INT8, 1024),  # one scale for a row
)


class Stored:
    """A source of one matrix of codes."""

    location, kinds = Path("m"), KINDS

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows

    def kind(self, name: str) -> Kind:
        return KINDS[0]

    def order(self, name: str) -> None: ...

    def turned(self, name: str) -> bool:
        return False

    def names(self) -> list[str]:
        return ["m"]

    def shape(self, name: str) -> tuple[int, ...]:
        return (*self.rows.shape, 1024)

    def describe(self, name: str) -> str:
        return name

    def read_into(self, name: str, out: np.ndarray) -> None:
        for field in self.rows.dtype.names or ():
            out[field] = self.rows[field]


def some_rows(seed: int) -> np.ndarray:
    """One row of each kind, in an order that the seed gives, and one more."""
    rng = np.random.default_rng(seed)
    rows = np.empty(len(KINDS) + 1, row_dtype(KINDS, 1024))
    rows["kind"] = rng.permutation([*range(len(KINDS)), 1])
    rows["codes"] = rng.integers(0, 120, rows["codes"].shape)
    for number, kind in enumerate(KINDS):
        here = rows["kind"] == number
        if kind.bits == 4:
            rows["codes"][here] %= 16
    for name in ("scales", "minimums", "outer_scales", "outer_minimums"):
        rows[name] = rng.integers(1, 30, rows[name].shape)
    return rows


@given(seed=st.integers(0, 1000), size=st.sampled_from([1, 2, 4, 8, 16, 64]), data=st.data())
def test_a_share_s_numbers_are_those_of_the_whole(seed: int, size: int, data: Any) -> None:
    rows, share = some_rows(seed), 1024 // size
    whole = numbers(rows, KINDS)
    start = share * data.draw(st.integers(0, size - 1))
    found = np.empty(len(rows), row_dtype(KINDS, share))
    Columns("m", start, start + share, 1024).read_into(Stored(rows), found, {})
    assert not any(cuts_groups(kind, share) for kind in KINDS)
    wanted = whole[:, start : start + share]
    np.testing.assert_array_equal(numbers(found, KINDS), wanted)


def test_which_shares_would_cut_a_group() -> None:
    cut = [
        [cuts_groups(kind, share) for share in (512, 384, 128, 96, 48, 32, 24)] for kind in KINDS
    ]
    assert cut == [
        [False, False, False, False, True, False, True],
        [False, True, False, True, True, False, True],
        [False, True, False, True, True, False, True],
        [False, False, False, True, True, False, True],
        [False, True, False, True, True, False, True],
    ]


def test_numbers_are_cut_as_well_and_rows_before_or_after() -> None:
    class Plain(Stored):
        def read_into(self, name: str, out: np.ndarray) -> None:
            out[...] = np.arange(6 * 1024).reshape(6, 1024)

    out = np.empty((2, 3), np.float32)
    Columns(Rows("m", np.array([4, 1]), 6), 5, 8, 1024).read_into(Plain(some_rows(0)), out, {})
    assert out.tolist() == [[4101, 4102, 4103], [1029, 1030, 1031]]
    assert list(Columns("m", 5, 8, 1024).tensors((2, 3), {})) == [("m", (2, 1024))]
