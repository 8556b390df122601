"""Variants of the exercises: a seed changes their numbers, in the task and in its check."""

import doctest
import subprocess
import sys
from importlib import import_module

import pytest

from exercises import variants
from exercises.variants import draw, say
from scripts import exercise_table
from scripts.cells_in_pages import lacks, outside_of
from scripts.docs_hooks import on_page_markdown
from tests.exercises.hard_coded import HARD_CODED
from tests.meta.trees import ROOT

NAMES = sorted(exercise_table.TASKS)
PAGE = (ROOT / "docs" / "tutorial" / "exercises.md").read_text("utf-8")
SEEN_IN_VARIANT_0 = {"hanging_scheduler"}
"""Their checks try other numbers in variant 0, too."""


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_is_right_in_each_variant(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = import_module(f"exercises.solutions.{name}").ANSWER
    task = import_module(f"exercises.{name}")
    for seed in range(1, 40):
        assert task.check(answer, seed) is True
        numbers = say(draw(task.Numbers, seed))
        assert capsys.readouterr().out == f"Variant {seed}: {numbers}.\nRight.\n"


@pytest.mark.parametrize("name", NAMES)
def test_written_down_numbers_are_wrong_in_any_other_variant(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check, answer = import_module(f"exercises.{name}").check, HARD_CODED[name]
    assert check(answer) is (name not in SEEN_IN_VARIANT_0)
    assert not any([check(answer, seed) for seed in range(1, 40)])
    capsys.readouterr()


@pytest.mark.parametrize("name", NAMES)
def test_students_have_different_numbers(name: str) -> None:
    kind = import_module(f"exercises.{name}").Numbers
    variants = [draw(kind, seed) for seed in range(1, 40)]
    assert all(mine != usual for one in variants for mine, usual in zip(one, kind(), strict=True))
    assert len(set(variants)) > 2 and variants == [draw(kind, seed) for seed in range(1, 40)]


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "exercises.chunks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_example_of_a_draw() -> None:
    assert doctest.testmod(variants) == doctest.TestResults(failed=0, attempted=4)


def test_the_command_line_takes_a_seed() -> None:
    lines = _run("--seed", "7").stdout.splitlines()
    assert lines[0].startswith("Variant 7: block_size = ") and "Not written yet" in lines[1]
    for wrong in (["7"], ["--seed"], ["--seed", "-1"], ["--seed", "x"]):
        done = _run(*wrong)
        assert done.returncode == 1 and "--seed and a whole number" in done.stderr


def test_the_size_is_that_of_the_answer() -> None:
    """These were counted by hand; the others are counted alike."""
    assert {name: exercise_table.size(name) for name in ("crossing_hits", "top_p", "chunks")} == {
        "crossing_hits": 2,
        "top_p": 4,
        "chunks": 15,
    }


def test_the_page_goes_by_size_and_chapter() -> None:
    order = exercise_table.order()
    grades = [exercise_table.grade(name) for name in order]
    assert sorted(grades, key=list(exercise_table.GRADES).index) == grades
    assert set(grades) == set(exercise_table.GRADES) and set(order) == set(NAMES)
    in_page = [name for name in order if not lacks(outside_of(f"exercises.{name}"))]
    shown = [line.split()[2] for line in PAGE.splitlines() if line.startswith("{{ exercise ")]
    assert shown == in_page == order
    assert f"There are {'fifteen' if len(order) == 15 else len(order)} short tasks" in PAGE


def test_the_page_says_what_the_variants_are() -> None:
    built = on_page_markdown(PAGE)
    rows = [line for line in built.splitlines() if line.startswith("| `exercises.")]
    assert [row.split("`")[1].removeprefix("exercises.") for row in rows] == exercise_table.order()
    assert "Right.\nVariant 7: block_size = " in built
    assert "Not yet: the slots of positions" in built
