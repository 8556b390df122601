"""Rounds of thorough runs: what they run, keep and say; and how examples are counted."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.meta.trees import ROOT
from tests.support.counting import test_of as name_of
from tests.support.counting import valid_examples
from tests.thorough import record, rounds, tables
from tests.thorough.named import named
from tests.thorough.parts import PARTS, Part, seed_of, with_random_tests
from tests.thorough.record import Run
from tests.thorough.rounds import Outcome, run_part, run_rounds

FIRST, SECOND = Part("first", ("a",)), Part("second", ("b",), once=True)
COUNTS = {"tests/a.py::test_x": 20, "tests/b.py::test_y": 1}


def pretend(monkeypatch: pytest.MonkeyPatch, failing: str = "") -> list[tuple[str, int]]:
    """Parts run nothing, and `failing` fails; what ran, with its seeds."""
    ran: list[tuple[str, int]] = []

    def run(part: Part, seed: int) -> Outcome:
        ran.append((part.name, seed))
        told: dict[str, Any] = {"counts": COUNTS, "seen": {"deadline": 2}}
        return Outcome(part, seed, part.name != failing, 90.0, "all it printed", told)

    monkeypatch.setattr(rounds, "run_part", run)
    return ran


def test_rounds_go_on_until_the_time_is_up(monkeypatch) -> None:
    ran, run = pretend(monkeypatch), Run("abc", "now", 7)
    times = iter([0.0, 10.0, 20.0, 30.0, 61.0])
    monkeypatch.setattr(rounds, "time", SimpleNamespace(monotonic=lambda: next(times)))
    assert run_rounds(run, 1, (FIRST, SECOND), show=lambda line: None)
    assert [name for name, _ in ran] == ["first", "second", "first", "first"]
    assert len({seed for _, seed in ran}) == 4, "each has a seed of its own"
    assert [seed for _, seed in ran][:2] == [seed_of(FIRST, 0, 7), seed_of(SECOND, 0, 7)]
    assert run.rounds == {"first": 3, "second": 1} and run.seconds == 360
    assert run.counts["tests/a.py"]["test_x"] == 80 and run.seen["deadline"] == 8


def test_a_failure_ends_a_run_and_says_what_repeats_it(monkeypatch) -> None:
    ran, run = pretend(monkeypatch, "second"), Run("abc", "now", 7)
    lines: list[str] = []
    assert not run_rounds(run, 60, (FIRST, SECOND, FIRST), show=lines.append)
    seed = seed_of(SECOND, 0, 7)
    assert len(ran) == 2 and run.failures == [f"second, {seed}"]
    assert "all it printed" in lines[-1]
    assert lines[-1].endswith(f"python -m pytest -q -x b --hypothesis-seed={seed}")
    assert f"HYPOTHESIS_PROFILE=rounds ROUNDS_EXAMPLES=1000 KERNELS_SEED={seed}" in lines[-1]


def test_parts_that_run_once_end_by_themselves(monkeypatch) -> None:
    ran = pretend(monkeypatch)
    assert run_rounds(Run("abc", "now", 7), 60, (SECOND,), show=lambda line: None)
    assert len(ran) == 1


def test_a_record_is_read_as_it_was_written_and_adds_up(tmp_path) -> None:
    run = Run("abc", "now", 7)
    for _ in range(2):
        run.add("core", 1.5, {"counts": COUNTS, "seen": {"deadline": 1}})
    record.write([run, run], tmp_path / "record.jsonl")
    runs = record.read(tmp_path / "record.jsonl")
    assert runs == [run, run] and runs[0].seconds == 3
    assert record.examples(runs) == {"tests/a.py::test_x": 80, "tests/b.py::test_y": 4}
    rows = tables.exercised_rows({1: {"tests/a.py"}, 2: {"tests/b.py::test_y"}, 3: {"c"}}, runs)
    assert [row.split("|")[-2].strip() for row in rows] == ["80", "4", "0"]
    assert tables.without_counts(rows[0]) == "| I1 | `a.py` |"


def test_the_tests_of_all_parts_exist() -> None:
    for part in PARTS:
        assert [one for one in part.tests if not (ROOT / one.partition("::")[0]).exists()] == []


@pytest.mark.slow
def test_examples_are_counted() -> None:
    """By Hypothesis, of a state machine, and of a case that is written by hand."""
    part = Part("some", ("tests/core/test_policies.py",), examples=7)
    outcome = run_part(part, 1)
    assert outcome.passed, outcome.printed
    counts = outcome.told["counts"]
    file = "tests/core/test_policies.py::"
    assert counts[f"{file}test_i24_equal_priorities_are_first_come_first_served"] == 7
    assert counts[f"{file}test_i24_a_preempted_request_takes_no_budget"] == 1
    assert run_part(part, 1).told == outcome.told, "a seed repeats a part"


def test_what_hypothesis_discards_is_not_counted() -> None:
    cases = [{"status": "valid"}, {"status": "invalid"}, {"status": "overrun"}]
    assert valid_examples({"generate-phase": {"test-cases": cases}, "stopped-because": "x"}) == 1
    assert name_of("tests/a.py::TestPair::runTest") == "tests/a.py::TestPair"
    assert name_of("tests/a.py::test_x[1-y]") == "tests/a.py::test_x"


def test_invariants_are_found_where_tests_name_them() -> None:
    found = named()
    assert "tests/properties/test_block_manager_pair.py::TestBlockManagerPair" in found[12]
    assert "tests/tokenization/test_stop.py" in found[50]
    assert "tests/core/test_policies.py::test_i24_a_preempted_request_takes_no_budget" in found[24]


def test_each_file_that_draws_examples_is_in_a_part() -> None:
    """But those about this repository, those of clients, and what is compiled for an AMD GPU."""
    named = tuple(test.partition("::")[0] for part in PARTS for test in part.tests)
    folders = [path.name for path in (ROOT / "tests").iterdir() if path.is_dir()]
    left = [file for file in with_random_tests(*folders) if not file.startswith(named)]
    elsewhere = ("tests/aot/", "tests/clients/", "tests/meta/")
    assert [file for file in left if not file.startswith(elsewhere)] == []
    assert all((ROOT / file).exists() for file in named)
