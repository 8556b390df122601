"""The teacher's pack: minutes that add up, exercises and questions that exist, links that hold."""

import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from exercises import chunks
from exercises.variants import draw
from playground import session
from playground.scenes import SCENES, TITLES
from scripts.contents import PATHS
from scripts.exercise_cell import parts
from scripts.tutorial.handed_in import SOLUTIONS, Status, check, variants_of, verdict
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


def test_each_question_of_the_lesson_has_an_answer() -> None:
    asked = re.findall(r"^\| \d+ to \d+ \| .+ \| (.+?)[?] \|$", TEXT, re.MULTILINE)
    answers = re.findall(r"^    \d\. \*(.+?)[?]\*", TEXT, re.MULTILINE)
    assert len(asked) == len(answers) == 8


def test_the_fault_that_is_shown_falls_where_the_answer_says() -> None:
    assert TITLES["sharing"] == "Three samples of one prompt"
    fell = session.run({**SCENES["sharing"], "breaks": ["no copy on write"]})["fell"]
    assert (fell["invariant"], fell["step"]) == ("I10", 2)
    assert fell["says"].startswith("A1 writes position 7 into block")
    assert session.run(SCENES["sharing"])["fell"] is None


def test_the_teacher_s_way_has_the_lesson_s_pages() -> None:
    (way,) = [names for title, names in PATHS.items() if title.startswith("A teacher")]
    lesson = TEXT.partition("\n| 0 to 5")[2].partition("\n\n")[0]
    assert way[0] == "teaching" and {*re.findall(r"\(([\w-]+)\.md", lesson)} < {*way}


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


@pytest.mark.parametrize("path", sorted(SOLUTIONS.glob("[a-z]*.py")), ids=lambda path: path.stem)
def test_each_exercise_can_be_handed_in(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a file that has the answer; the file as it is given out is not right, nor the page's."""
    assert check(path) is Status.RIGHT
    assert check(path.parents[1] / path.name) is Status.WRONG
    in_page = tmp_path / f"anna_{path.name}"
    in_page.write_text(parts(path.stem)["code"], "utf-8")
    assert check(in_page) is Status.WRONG
    assert "could not be checked" not in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(one.stem for one in SOLUTIONS.glob("[a-z]*.py")))
def test_variant_0_and_three_more_are_checked(name: str) -> None:
    kind = import_module(f"exercises.{name}").Numbers
    for seed in range(40):
        found = variants_of(name, seed)
        assert found[0] == seed and 0 in found
        assert len({draw(kind, one) for one in found}) == len(found) == (5 if seed else 4)


def run(path: Path, *options: str) -> tuple[int, str]:
    """The exit status of the command, and what it prints."""
    command = [sys.executable, "-m", "scripts.tutorial.handed_in", str(path), *options]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_S)
    return found.returncode, found.stdout


def given(name: str) -> str:
    """The file of an exercise, as students get it."""
    return (SOLUTIONS.parent / f"{name}.py").read_text("utf-8")


def solution(name: str) -> str:
    return (SOLUTIONS / f"{name}.py").read_text("utf-8")


def test_a_file_s_own_check_and_helpers_do_not_count(tmp_path: Path) -> None:
    """The exit status says so; what a student adds for the answer is kept."""
    path = tmp_path / "top_p.py"
    own = "\n\ndef report(*_):\n    return True\n\n\ncheck = report\n"
    path.write_text(given("top_p") + own, "utf-8")
    status, says = run(path)
    assert status == Status.WRONG and "Not written yet" in says
    path.write_text(given("top_p") + "\n\n" + solution("top_p"), "utf-8")
    status, says = run(path, "--seed", "17")
    assert status == Status.RIGHT and says.startswith("Variant 17: p = ")
    assert says.splitlines()[1:] == ["Right.", "Right in the variants 0, 18, 19 and 20 as well."]


@pytest.mark.parametrize("seed", [0, 18])
def test_a_number_that_is_written_down_is_wrong(seed: int, tmp_path: Path) -> None:
    """Also if it is that of the student's own variant, which alone would be right."""
    size = draw(chunks.Numbers, seed).block_size
    path = tmp_path / "chunks.py"
    path.write_text(solution("chunks").replace("// block_size", f"// {size}"), "utf-8")
    assert verdict(path, "chunks", seed).status is Status.RIGHT
    status, says = run(path, "--seed", str(seed))
    assert status == Status.WRONG
    assert f"Right.\nBut not in variant {variants_of('chunks', seed)[1]}, so a number" in says
    assert "Not yet: new_blocks of its chunks" in says


NOTHING_TO_CHECK = {
    "exits": ("import sys\nsys.exit(0)\n", "ends the program when it is imported"),
    "ends its process": ("import os\nos._exit(0)\n", "the program ended before the check did"),
    "says that it is right": ("print('Right.')\n", "does not define keep_top_p"),
    "is empty": ("", "does not define keep_top_p"),
    "is no Python": ("def keep_top_p(:\n", "cannot be imported: SyntaxError"),
    "fails": ("import nothing_of_this_name\n", "cannot be imported: ModuleNotFoundError"),
    "exits when it is called": (
        "import sys\n\n\ndef keep_top_p(*_):\n    sys.exit(0)\n",
        "the answer ends the program",
    ),
}
"""By what a file does: the file, and what is said of it."""


@pytest.mark.parametrize("what", NOTHING_TO_CHECK)
def test_a_file_without_an_answer_is_no_wrong_answer(what: str, tmp_path: Path) -> None:
    text, why = NOTHING_TO_CHECK[what]
    path = tmp_path / "top_p.py"
    path.write_text(text, "utf-8")
    status, says = run(path)
    assert status == Status.UNCHECKED and says.startswith("top_p.py could not be checked: ")
    assert why in says and "Right" not in says


def test_a_missing_file_is_no_wrong_answer(tmp_path: Path) -> None:
    status, says = run(tmp_path / "top_p.py")
    assert status == Status.UNCHECKED and "cannot be read: No such file" in says


@pytest.mark.slow
def test_the_exercise_is_named_by_the_file_or_by_an_option(tmp_path: Path) -> None:
    path = tmp_path / "anna_admission.py"
    path.write_text(solution("admission"), "utf-8")
    assert run(path)[0] == Status.RIGHT
    other = path.rename(tmp_path / "anna.py")
    assert run(other, "--exercise", "admission")[0] == Status.RIGHT
    for options in ((), ("--exercise", "checking")):
        status, says = run(other, *options)
        assert status == Status.UNCHECKED and "which exercise this is" in says


def test_the_functions_alone_can_be_handed_in(tmp_path: Path) -> None:
    """As they stand in the page, without what the exercise gives: `Chunk`, `Sequence`."""
    found = solution("chunks").partition("from exercises.chunks import Answer, Chunk\n")[2]
    path = tmp_path / "chunks.py"
    path.write_text(found.partition("ANSWER")[0], "utf-8")
    assert run(path)[0] == Status.RIGHT
