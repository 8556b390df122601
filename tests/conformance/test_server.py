"""The suite of servers: right ones of odd habits pass, and each mistake is noticed."""

import pytest
from hypothesis.strategies import none

from paged_conformance import Capabilities, Lacking, Property
from paged_conformance.search import search
from paged_conformance.server import CAPABILITIES, PROPERTIES, connect
from paged_conformance.server.client import base
from paged_conformance.server.probe import Target
from paged_conformance.server.right import RIGHT
from paged_conformance.server.scripted import Handler, Running, Scripted
from paged_conformance.server.speed import suited, twice
from paged_conformance.server.wire import Late
from paged_conformance.server.wrong import (
    WRONG,
    BiasesFail,
    NoDone,
    Slow,
    StopIdsEndTheEngine,
    WhoLeavesKeepsItsSlot,
)

BY_NAME = {prop.name: prop for prop in PROPERTIES}
SEED = 7


@pytest.mark.parametrize(("kind", "name"), WRONG, ids=lambda one: getattr(one, "__name__", one))
def test_each_mistake_is_noticed(kind: type[Scripted], name: str, monkeypatch):
    monkeypatch.setattr("paged_conformance.search.SHRINK_SECONDS", (0.2, 0.2))
    with Running(kind(), Slow if kind is WhoLeavesKeepsItsSlot else Handler) as running:
        make = connect(running.url, {"patience": "4"})
        has = Capabilities(make.capabilities, make.sizes)
        assert set(BY_NAME[name].needs) <= has.words
        found = search(BY_NAME[name], make, has, seconds=120, seed=SEED)
    assert found.failed
    assert found.says


def test_every_property_has_a_mistake_that_it_notices():
    assert {name for _, name in WRONG} == set(BY_NAME)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "handler"), RIGHT, ids=lambda one: one.__name__)
def test_right_servers_pass(kind: type[Scripted], handler: type[Handler]):
    num_examples = 0
    with Running(kind(), handler) as running:
        make = connect(running.url, {"patience": "30"})
        has = Capabilities(make.capabilities, make.sizes)
        for prop in PROPERTIES:
            if set(prop.needs) <= has.words:
                found = search(prop, make, has, seconds=1, seed=SEED)
                assert not found.failed, (prop.name, found.says, found.trace)
                num_examples += found.num_examples - found.num_lacking
    assert num_examples


def test_capabilities_are_of_the_list():
    with Running(Scripted()) as running:
        words = connect(running.url, {}).capabilities
    assert words <= CAPABILITIES.keys()
    assert CAPABILITIES.keys() - words == {"metrics"}
    assert {word for prop in PROPERTIES for word in prop.needs} <= CAPABILITIES.keys()


def test_a_property_that_is_not_needed_for_a_mistake_passes():
    """A stream without its end is still joined: each property looks at its own."""
    with Running(NoDone()) as running:
        make = connect(running.url, {})
        has = Capabilities(make.capabilities, make.sizes)
        found = search(BY_NAME["chat-stream-is-whole"], make, has, seconds=0.3, seed=SEED)
    assert not found.failed


def test_examples_after_the_end_of_a_server_are_not_counted():
    scripted = StopIdsEndTheEngine()
    with Running(scripted) as running:
        make = connect(running.url, {"patience": "1"})
        scripted.is_well = False
        with pytest.raises(AssertionError, match="was well after the example before"):
            make()
        with pytest.raises(Lacking, match="has ended"):
            make()


def test_an_address_without_a_server_says_so():
    with Running(Scripted()) as running:
        url = running.url
    with pytest.raises(Lacking, match=r"GET /v1/models was not answered: .* Start the server"):
        connect(url, {"patience": "1"})


def test_an_address_without_its_end_says_so():
    with Running(Scripted()) as running, pytest.raises(Lacking, match="usually ends with /v1"):
        connect(running.url.removesuffix("/v1"), {})


def test_a_slow_server_gets_more_patience_and_shorter_answers():
    assert suited(0.001) == (20, 16)
    assert suited(0.3) == (60, 8)
    assert suited(1.0) == (200, 4)


def test_an_example_that_takes_long_is_not_counted():
    with Running(Scripted()) as running:
        client = connect(running.url, {})()
        client.end = 0.0
        with pytest.raises(Lacking, match="a faster server"):
            client.ask(base("chat"))
        assert client.ill() == ""


def late(times: int) -> Property:
    """A property that is late so many times."""
    left = [True] * times

    def check(_: Target, __: None) -> None:
        if left:
            left.pop()
            raise Late("nothing came")

    return twice(Property("late", "It is late.", lambda _: none(), check))


def test_late_once_is_no_failure_and_late_twice_is_one():
    with Running(Scripted()) as running:
        make = connect(running.url, {})
        late(1).check(make, None)
        for times in (2, 3):
            with pytest.raises(Late, match="nothing came"):
                late(times).check(make, None)
    assert make.client.wire.patience == make.sizes["patience"]


def test_one_of_many_odd_requests_is_left():
    with Running(BiasesFail()) as running:
        make = connect(running.url, {})
        has = Capabilities(make.capabilities, make.sizes)
        found = search(BY_NAME["odd-values"], make, has, seconds=120, seed=SEED)
    (request,) = found.example["requests"]
    assert set(request["body"]) == {"logit_bias"}


def test_what_ends_a_server_is_not_called_flaky():
    with Running(StopIdsEndTheEngine()) as running:
        make = connect(running.url, {"patience": "4"})
        has = Capabilities(make.capabilities, make.sizes)
        found = search(BY_NAME["values-end-nothing"], make, has, seconds=120, seed=SEED)
    assert found.failed
    assert not found.flaky


def test_an_address_that_is_none_says_so():
    with pytest.raises(ValueError, match=r"url is 'file:///x'; it must be one such as http"):
        connect("file:///x", {})
