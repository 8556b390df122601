"""What the rules make of a function, by hand; that a fork gets the bug, and a hang ends."""

import ast
from threading import Event

import pytest

from jax_engine.core.sequence import StopRule
from tests.mutation.children import Say, in_children
from tests.mutation.generated import all_generated, functions
from tests.mutation.judging import living_functions, plant
from tests.mutation.rules import changes
from tests.support.patience import HANG_S

TEXT = '''
def weigh(items: list[int], most: int = 5) -> int:
    """Nothing is made of `1 + 1` here."""
    total = 0
    for item in items:
        if item < most and not item % 2:
            total += item
    logger.info("%d", total + 1)
    return min(total, most)
'''


def test_bugs_of_a_function() -> None:
    tree = ast.parse(TEXT).body[0]
    assert isinstance(tree, ast.FunctionDef)
    found = {(c.rule, ast.unparse(c.node), ast.unparse(c.new)) for c in changes(tree)}
    assert found == {
        ("constant", "0", "1"),
        ("and-or", "item < most and (not item % 2)", "item < most or not item % 2"),
        ("compare", "item < most", "item <= most"),
        ("drop-not", "not item % 2", "item % 2"),
        ("arithmetic", "item % 2", "item // 2"),
        ("constant", "2", "3"),
        ("arithmetic", "total += item", "total -= item"),
        ("delete", "total += item", "pass"),
        ("min-max", "min", "max"),
    }


def test_a_function_s_key_is_of_its_code_alone() -> None:
    def key(text: str) -> str:
        return next(functions("a.py", text)).key

    assert key(TEXT) == key(TEXT.replace("Nothing", "Something")) == key("\n\n" + TEXT)
    assert key(TEXT) != key(TEXT.replace("item < most", "item <= most"))


@pytest.mark.slow
def test_a_child_has_the_bug_and_its_parent_has_not() -> None:
    mutant = next(m for m in all_generated(["core"]) if m.name.function == "StopRule.check")
    functions_here = living_functions()

    def work(job: object, say: Say) -> None:
        plant(mutant, functions_here)
        say(StopRule.check.__code__ == mutant.compiled(), HANG_S)

    (done,) = in_children([mutant], work, 1)
    assert (done.how, done.said) == ("ended", [True])
    assert StopRule.check.__code__ != mutant.compiled()


@pytest.mark.slow
def test_a_bug_is_planted_where_nobody_has_imported_the_code_yet() -> None:
    """Each command is imported when it is asked for."""
    mutant = next(m for m in all_generated(["core"]) if m.name.function == "StopRule.check")
    before = StopRule.check.__code__
    try:
        plant(mutant, {})
        assert StopRule.check.__code__ == mutant.compiled()
    finally:
        StopRule.check.__code__ = before


def test_a_child_that_hangs_is_ended() -> None:
    def hang(job: object, say: Say) -> None:
        say("begins", 0.2)
        Event().wait()

    (done,) = in_children([1], hang, 1)
    assert (done.how, done.said) == ("hung", ["begins"])
