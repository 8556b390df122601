"""The teacher's pack: minutes that add up, exercises and questions that exist, links that hold."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import exercises.solutions
import exercises.top_p
from scripts.tutorial.handed_in import check
from tests.docs.page_links import DOCS, dead
from tests.docs.test_exam import questions
from tests.meta.trees import ROOT
from tests.support.patience import HANG_S

PAGE = DOCS / "tutorial" / "teaching.md"
TEXT = PAGE.read_text("utf-8")


def test_the_lesson_has_75_minutes() -> None:
    rows = re.findall(r"^\| (\d+) to (\d+) \| .+ \| .+ \| .+\? \|$", TEXT, re.MULTILINE)
    times = [(int(start), int(end)) for start, end in rows]
    assert [start for start, _ in times] == [0, *(end for _, end in times[:-1])]
    assert times[-1][1] == 75


def test_three_sheets_name_exercises_and_questions_that_exist() -> None:
    sheets = TEXT.partition("## Three sheets")[2].partition("\n## ")[0].split("**Sheet ")[1:]
    assert len(sheets) == 3
    named = [re.findall(r"python -m exercises\.(\w+)", sheet) for sheet in sheets]
    asked = [re.findall(r"\d+", line) for line in re.findall(r"^\d\. Exam (.+)$", TEXT, re.M)]
    assert min(map(len, named)) >= 2 and len(asked) == 3
    names = [name for sheet in named for name in sheet]
    assert len({*names}) == len(names)
    assert all(find_spec(f"exercises.{name}") for name in names)
    assert {int(number) for line in asked for number in line} <= set(questions())


def test_links_lead_to_a_heading() -> None:
    assert dead(PAGE) == []


SOLUTIONS = sorted(Path(exercises.solutions.__file__ or "").parent.glob("[a-z]*.py"))


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_each_exercise_can_be_handed_in(path: Path) -> None:
    """As a file that has the answer; the file as it is given out is not right."""
    assert check(path)
    assert not check(path.parents[1] / path.name)


def test_a_file_s_own_check_and_helpers_do_not_count(tmp_path: Path) -> None:
    """The exit status says so; what a student adds for the answer is kept."""
    given = Path(exercises.top_p.__file__ or "").read_text("utf-8")
    path = tmp_path / "top_p.py"
    path.write_text(given + "\n\ndef report(*_):\n    return True\n\n\ncheck = report\n", "utf-8")
    command = [sys.executable, "-m", "scripts.tutorial.handed_in", str(path)]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_S)
    assert found.returncode == 1 and "Not written yet" in found.stdout
    solution = (ROOT / "exercises" / "solutions" / "top_p.py").read_text("utf-8")
    path.write_text(given + "\n\n" + solution, "utf-8")
    assert subprocess.run(command, cwd=ROOT, capture_output=True, timeout=HANG_S).returncode == 0
