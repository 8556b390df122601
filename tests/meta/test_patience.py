"""Tests wait for what must come, and no number of seconds of their own decides (`HANG_S`)."""

import ast
from collections.abc import Iterator

import pytest

from tests.meta.trees import ROOT

# What waits for another process, thread or task, and how long by its first or second argument.
WAITS = {"communicate", "join", "poll", "result", "wait", "wait_for"}
# What takes the seconds as `timeout`.
TIMED = WAITS | {
    "AsyncClient", "Client", "create_connection", "get", "post", "run", "stream", "urlopen",
}  # fmt: skip


def limits(source: str) -> Iterator[int]:
    """The lines with a wait of so many seconds, the number written down."""
    for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        given = [one.value for one in call.keywords if one.arg == "timeout" and name in TIMED]
        if name in WAITS:
            given += call.args
        if any(isinstance(one, ast.Constant) and type(one.value) in (int, float) for one in given):
            yield call.lineno


@pytest.mark.slow
def test_no_test_waits_for_a_number_of_seconds() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in (ROOT / "tests").rglob("*.py")
        if "clients" not in path.parts  # of an environment of their own
        for line in limits(path.read_text("utf-8"))
    ]
    assert not found, "use tests/support/patience.py"


def test_a_number_is_found_and_a_name_is_not() -> None:
    assert list(limits("a.wait(3)\nrun(x, timeout=60)\nwait_for(job(), 0.5)")) == [1, 2, 3]
    assert not list(limits("a.wait(LIMIT)\nrun(x, timeout=HANG_S)\n','.join(x)\nadd(timeout=3)"))
