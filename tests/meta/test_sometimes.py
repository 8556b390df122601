"""A run of the engine's suites that never met what they are there for fails."""

from collections import Counter
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings

from tests.support import sometimes
from tests.support.share import EVERYTHING
from tests.support.sometimes import MUST_HAPPEN, SUITES, Sometimes, are_whole


def finished(
    monkeypatch: pytest.MonkeyPatch, seen: dict[str, int], *, whole: bool = True, failed: int = 0
) -> tuple[Sometimes, Any]:
    """The plugin and the session of a run that saw this."""
    monkeypatch.setattr(sometimes, "SEEN", Counter())
    plugin, session = (
        Sometimes(),
        SimpleNamespace(config=object(), testsfailed=failed, exitstatus=0),
    )
    pairs = list(seen.items())
    for half in (dict(pairs[::2]), dict(pairs[1::2])):
        plugin.pytest_testnodedown(SimpleNamespace(workeroutput={"seen": half, "whole": whole}))
    plugin.pytest_sessionfinish(session)
    return plugin, session


def test_what_never_happened_fails_a_whole_run(monkeypatch) -> None:
    everything = dict.fromkeys(MUST_HAPPEN, 1)
    assert finished(monkeypatch, everything)[1].exitstatus == 0
    for one in MUST_HAPPEN:
        plugin, session = finished(monkeypatch, everything | {one: 0})
        assert plugin.missing == [one]
        assert session.exitstatus == pytest.ExitCode.TESTS_FAILED
        assert finished(monkeypatch, everything | {one: 0}, whole=False)[1].exitstatus == 0


def test_a_process_tells_the_one_that_started_it(monkeypatch) -> None:
    monkeypatch.setattr(sometimes, "SEEN", Counter(deadline=2))
    config = SimpleNamespace(workeroutput={})
    session: Any = SimpleNamespace(config=config, testsfailed=0, exitstatus=0)
    Sometimes().pytest_sessionfinish(session)
    assert config.workeroutput == {"seen": {"deadline": 2}, "whole": False}
    assert session.exitstatus == 0, "it cannot know what others saw"


def test_a_run_is_whole_if_no_test_of_the_suites_is_missing(request) -> None:
    modules = [import_module(name) for name in SUITES]
    parent = request.node.parent
    items: list[Any] = []
    for module in modules:
        own = pytest.Module.from_parent(parent.parent, path=type(parent.path)(module.__file__))
        items += own.collect()
    assert are_whole(items)
    assert not are_whole([one for one in items if one.module is not modules[0]])
    name = items[0].originalname
    assert not are_whole([one for one in items if one.originalname != name])


@pytest.mark.parametrize(
    ("given", "whole"),
    [({}, True), ({"--share": 50}, False), ({"--minutes": 4.0}, False)],
)
def test_a_run_that_leaves_tests_out_is_not_whole(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], whole: bool
) -> None:
    monkeypatch.setattr(sometimes, "are_whole", lambda _: True)
    options = {"--share": EVERYTHING, "--minutes": None} | given
    session: Any = SimpleNamespace(config=SimpleNamespace(getoption=options.get), items=[])
    monkeypatch.setattr(sometimes, "settings", SimpleNamespace(
        default=settings.get_profile("dev"), get_profile=settings.get_profile
    ))  # fmt: skip
    plugin = Sometimes()
    plugin.pytest_collection_finish(session)
    assert plugin.whole is whole
