"""Fields of requests over HTTP, through app, service, `AsyncLLM`, messages and checks.

Only the device's step is missing. A request is compared with a plain one: what a field does not
mean must stay as it was.
"""

import pytest
from starlette.testclient import TestClient

from tests.serving.fields.cases import WAYS
from tests.serving.fields.conftest import ARRIVAL, Server
from tests.support.accepted import as_wanted, changed, leaves

ALL = [(path, name) for path, way in WAYS.items() for name in way.cases]


@pytest.mark.parametrize("path", WAYS)
def test_each_field_of_a_request_has_a_case(path: str) -> None:
    way = WAYS[path]
    assert set(leaves(way.model)) == way.cases.keys()
    assert all(bool(case.engine) != bool(case.why) for case in way.cases.values())


@pytest.mark.parametrize(("path", "name"), ALL)
def test_a_field_is_in_what_the_engine_accepts(
    path: str, name: str, server: Server, client: TestClient
) -> None:
    way = WAYS[path]
    case, plain = way.cases[name], way.plain | way.cases[name].needs
    without = server.ask(client, path, plain)
    assert without["arrival_time"] == ARRIVAL
    found = changed(server.ask(client, path, plain | case.body), without)
    if name != "request_id":
        assert found.pop("name") != without["name"]
    assert as_wanted(found, case.engine), found
