"""The suite of detokenizers catches each wrong one, and lets the right ones pass."""

from typing import Any

import pytest

import jax_engine.tokenization.detokenizer  # noqa: F401  (it may take longer than an example may)
from paged_conformance.adapters import jax_engine_detokenizer
from paged_conformance.detokenizer import CAPABILITIES, PROPERTIES
from paged_conformance.detokenizer.right import RIGHT, Oracle
from paged_conformance.detokenizer.wrong import WRONG
from paged_conformance.properties import Capabilities, Property
from paged_conformance.search import Found, search

BY_NAME = {one.name: one for one in PROPERTIES}


@pytest.fixture(autouse=True)
def unshrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small examples are nice to read, and take most of the time."""
    monkeypatch.setattr("paged_conformance.search.SHRINK_SECONDS", (0.0, 0.0))


def looked(prop: Property, make: Any, seconds: float) -> Found:
    has = Capabilities(frozenset(make.capabilities), {})
    return search(prop, make, has, seconds=seconds, seed=1)


@pytest.mark.parametrize("wrong", WRONG, ids=lambda one: one.__name__)
def test_a_wrong_detokenizer_is_caught(wrong: type[Oracle]) -> None:
    found = looked(BY_NAME[WRONG[wrong]], wrong, 600)
    assert found.failed, f"{found.num_examples} examples"


@pytest.mark.parametrize(
    "right", [*RIGHT, jax_engine_detokenizer.Own], ids=lambda one: one.__name__
)
@pytest.mark.parametrize("name", BY_NAME)
def test_i50_a_right_detokenizer_passes(name: str, right: Any) -> None:
    prop = BY_NAME[name]
    if not set(prop.needs) <= right.capabilities:
        pytest.skip(f"{right.__name__} has not all of {sorted(prop.needs)}")
    found = looked(prop, right, 1.0)
    assert not found.failed, found.says


def test_each_property_can_fail() -> None:
    assert set(WRONG.values()) == set(BY_NAME)
    for prop in PROPERTIES:
        assert set(prop.needs) <= set(CAPABILITIES)
