"""The exam has sixty questions, graded; each number of an answer is computed or in its question."""

import re

import pytest

from tests.docs.exam_answers import ANSWERS
from tests.docs.page_links import DOCS, dead

PAGE = DOCS / "tutorial" / "exam.md"
QUESTION = re.compile(
    r'^\?\?\? question "(\d+)\. (\w+)(, calculate|, draw)?\. (.+)"$', re.MULTILINE
)
# Names with a number in them, and names of blocks' owners: no result.
NAMES = re.compile(r"§[\d.]+|\bI\d+\b|vLLM 0\.2\.0|\bV1\b|[Rr]ungs? \d|10[⁰¹²³⁴⁵⁶⁷⁸⁹]+|2[³⁰]+")
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?")


def questions() -> dict[int, tuple[str, str, str, str]]:
    """By number: the grade, whether it is calculated or drawn, the question and its answer."""
    text = PAGE.read_text("utf-8")
    found = {}
    for match in QUESTION.finditer(text):
        rest = text[match.end() :].lstrip("\n")
        lines = []
        for line in rest.splitlines():
            if line and not line.startswith("    "):
                break
            lines.append(line)
        kind = (match[3] or "").removeprefix(", ")
        found[int(match[1])] = match[2], kind, match[4], "\n".join(lines)
    return found


def numbers(text: str) -> set[float]:
    return {float(one.replace(",", "")) for one in NUMBER.findall(NAMES.sub("", text))}


def test_there_are_sixty_of_three_grades_and_many_are_worked_out() -> None:
    found = questions()
    assert list(found) == list(range(1, 61))
    grades = [grade for grade, _, _, _ in found.values()]
    assert {*grades} == {"Easy", "Middle", "Hard"}
    assert min(grades.count(grade) for grade in {*grades}) >= 15
    kinds = [kind for _, kind, _, _ in found.values()]
    assert kinds.count("calculate") >= 20 and kinds.count("draw") >= 5
    assert set(ANSWERS) >= {n for n, (_, kind, _, _) in found.items() if kind == "calculate"}


@pytest.mark.parametrize("number", range(1, 61))
def test_numbers_of_an_answer_are_computed(number: int) -> None:
    _, kind, question, said = questions()[number]
    computed = {float(one) for one in ANSWERS[number]()} if number in ANSWERS else set()
    assert numbers(said) - computed - numbers(question) == set()
    assert kind != "calculate" or numbers(said) & computed


def test_a_typed_number_is_noticed() -> None:
    assert numbers("rung 3 moves 1,234.5 of V1 (I8), 7 × 10⁹") == {1234.5, 7.0}


def test_links_lead_to_a_heading() -> None:
    assert dead(PAGE) == []
