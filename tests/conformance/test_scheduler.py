"""The suite of schedulers catches each wrong scheduler, and lets the right ones pass."""

from typing import Any

import pytest

from paged_conformance.properties import Capabilities, Property
from paged_conformance.scheduler import CAPABILITIES, PROPERTIES
from paged_conformance.scheduler.plain import Plain
from paged_conformance.scheduler.right import RIGHT
from paged_conformance.scheduler.wrong import WRONG
from paged_conformance.search import Found, search

BY_NAME = {one.name: one for one in PROPERTIES}


@pytest.fixture(autouse=True)
def unshrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small examples are nice to read, and take most of the time."""
    monkeypatch.setattr("paged_conformance.search.SHRINK_SECONDS", (0.0, 0.0))


def looked(prop: Property, make: Any, seconds: float) -> Found:
    words = frozenset(make.capabilities)
    has = Capabilities(words, {})
    return search(prop, make, has, seconds=seconds, seed=1)


@pytest.mark.parametrize("wrong", WRONG, ids=lambda one: one.__name__)
def test_a_wrong_scheduler_is_caught(wrong: type[Plain]) -> None:
    found = looked(BY_NAME[WRONG[wrong]], wrong, 600)
    assert found.failed, f"{found.num_examples} examples"


@pytest.mark.parametrize("right", RIGHT, ids=lambda one: one.__name__)
@pytest.mark.parametrize("name", BY_NAME)
def test_a_right_scheduler_passes(name: str, right: type[Plain]) -> None:
    prop = BY_NAME[name]
    if not set(prop.needs) <= right.capabilities:
        pytest.skip(f"{right.__name__} has not all of {sorted(prop.needs)}")
    found = looked(prop, right, 0.3)
    assert not found.failed, found.says


def test_each_property_can_fail() -> None:
    """Those for more features than the plain scheduler has are tried on the engine's."""
    others = {"swapping", "samples", "adapters", "plans-ahead", "all-together"}
    assert set(WRONG.values()) | others == set(BY_NAME)


def test_words_are_known() -> None:
    for prop in PROPERTIES:
        assert set(prop.needs) <= set(CAPABILITIES)
    for right in RIGHT:
        assert right.capabilities <= set(CAPABILITIES)
