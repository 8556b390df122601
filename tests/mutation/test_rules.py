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
        ("part", "item < most and (not item % 2)", "item < most"),
        ("part", "item < most and (not item % 2)", "not item % 2"),
        ("part", "item % 2", "item"),
        ("part", "item % 2", "2"),
        ("part", "min(total, most)", "total"),
        ("part", "min(total, most)", "most"),
        ("never", "item < most and (not item % 2)", "False"),
        ("always", "item < most and (not item % 2)", "True"),
        ("assign", "total += item", "total = item"),
    }


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("self.a, self.b = 1, 2", {"self.b = 2", "self.a = 1"}),
        ("first, self.b = 1, 2", {"first = 1"}),
        ("x = where(a, b, c)", {"b", "c"}),
        ("x = min(*a, b)", {"b"}),
        ("x = y if z else w", {"True", "False"}),
    ],
)
def test_what_is_taken_away(text: str, becomes: set[str]) -> None:
    function = ast.parse(f"def f(self):\n    {text}").body[0]
    assert isinstance(function, ast.FunctionDef)
    made = {ast.unparse(c.new) for c in changes(function) if c.rule in ("part", "never", "always")}
    assert made == becomes


def test_a_branch_that_only_leaves_is_not_decided_twice() -> None:
    """Without its `return` it does nothing: another rule says that."""
    function = ast.parse("def f(x):\n    if x:\n        return 1\n    return 2").body[0]
    assert isinstance(function, ast.FunctionDef)
    assert "never" not in {c.rule for c in changes(function)}


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
