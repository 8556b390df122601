"""Which cores the processes of a model are given."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine.errors import ConfigError
from jax_engine.processes.placement import VARIABLE, cores_of_ranks, split_cores

OWN = [0, 1, 2, 3, 5, 8]
TABLE = [
    (None, 1, [[]]),
    (None, 2, [[0, 1, 2], [3, 5, 8]]),
    ("auto", 3, [[0, 1], [2, 3], [5, 8]]),
    (" ", 7, [[]] * 7),
    ("nobind", 2, [[], []]),
    ("0-2|5", 2, [[0, 1, 2], [5]]),
    ("8, 1-2|0", 2, [[8, 1, 2], [0]]),
    ("3", 1, [[3]]),
]


@pytest.mark.parametrize(("said", "count", "wanted"), TABLE)
def test_what_each_rank_has(said: str | None, count: int, wanted: list[list[int]]) -> None:
    environment = {} if said is None else {VARIABLE: said}
    assert cores_of_ranks(count, environment, OWN) == wanted


REFUSED = [
    ("0-1", 2, "must name the cores of 2 ranks, with | between them, got '0-1' with 1"),
    ("0|1|2", 2, "with 3"),
    ("0-1|1", 2, "each once, got '0-1|1' with 1"),
    ("0|4", 2, r"cores of this process \(0, 1, 2, 3, 5, 8\), each once, got '0|4' with 4"),
    ("all", 1, "must be auto, nobind, or cores of each rank as in 0-3|4-7, got 'all'"),
    ("0-|1", 2, "as in 0-3|4-7"),
    ("|1", 2, "as in 0-3|4-7"),
    ("-1|1", 2, "as in 0-3|4-7"),
    ("0|", 2, "as in 0-3|4-7"),
    ("3-1", 1, "as in 0-3|4-7, got '3-1'"),
    ("0-99999999999", 1, "as in 0-3|4-7"),
    ("0-999999999", 1, "each once, got '0-999999999' with 4, 6, 7, 9"),
    ("999999999", 1, "with 999999999"),
]


@pytest.mark.parametrize(("said", "count", "words"), REFUSED)
def test_what_makes_no_sense_is_refused(said: str, count: int, words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace("|", r"\|")):
        cores_of_ranks(count, {VARIABLE: said}, OWN)


@given(cores=st.lists(st.integers(0, 99), unique=True), count=st.integers(1, 9))
def test_shares_are_about_equal_and_all_there_is(cores: list[int], count: int) -> None:
    shares = split_cores(cores, count)
    if len(cores) < count:
        assert shares == [[]] * count
        return
    assert [core for share in shares for core in share] == cores
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
