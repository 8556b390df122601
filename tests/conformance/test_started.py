"""A server that the suite starts: again where an example has ended it, and never left behind."""

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paged_conformance import Capabilities, Lacking
from paged_conformance.search import search
from paged_conformance.server import PROPERTIES, connect
from paged_conformance.server.scripted import Running, Scripted
from paged_conformance.suites import SUITES
from paged_conformance.targets import Target, opened

# A stop token out of range ends the process, as the engine of a server would.
PROGRAM = """
import os
import sys

from paged_conformance.server.scripted import Handler, _Server
from paged_conformance.server.wrong import StopIdsEndTheEngine

class Ends(StopIdsEndTheEngine):
    def check(self, body):
        super().check(body)
        if not self.is_well:
            os._exit(7)

class Mine(Handler):
    scripted = Ends()

with open(sys.argv[2], "a") as file:
    file.write(f"{os.getpid()}\\n")
print("listens", flush=True)
_Server(("127.0.0.1", int(sys.argv[1])), Mine).serve_forever()
"""


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def command(tmp_path: Path, port: int) -> Iterator[str]:
    program, pids = tmp_path / "program.py", tmp_path / "pids"
    program.write_text(PROGRAM)
    yield f"{sys.executable} {program} {port} {pids}"
    for pid in pids.read_text().split() if pids.exists() else ():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def test_what_ends_a_server_is_made_smaller(command: str, port: int, tmp_path: Path) -> None:
    prop = next(prop for prop in PROPERTIES if prop.name == "values-end-nothing")
    target = Target(f"http://127.0.0.1:{port}/v1", options={"start": command, "patience": "5"})
    with opened(target, SUITES["server"]) as make:
        has = Capabilities(make.capabilities, make.sizes)
        found = search(prop, make, has, seconds=60, seed=7)
    assert found.failed and not found.flaky
    (request,) = found.example["requests"]
    assert request["body"].keys() <= {"stop_token_ids", "min_tokens", "max_tokens", "temperature"}
    assert len((tmp_path / "pids").read_text().split()) > 2


def test_a_command_that_ends_says_what_it_printed(port: int) -> None:
    command = f"{sys.executable} -c \"raise SystemExit('no model here')\""
    with pytest.raises(Lacking, match=r"ended with 1; it last printed: no model here"):
        connect(f"http://127.0.0.1:{port}/v1", {"start": command})


def test_a_command_that_is_none(port: int) -> None:
    with pytest.raises(Lacking, match="'/no/such/program x' cannot be started: "):
        connect(f"http://127.0.0.1:{port}/v1", {"start": "/no/such/program x"})


def test_one_that_never_listens_is_ended(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paged_conformance.server.started.START_SECONDS", 0.5)
    command = f'{sys.executable} -c "import time; time.sleep(1e6)"'
    with pytest.raises(Lacking, match="lists no models; it last printed: nothing"):
        connect(f"http://127.0.0.1:{port}/v1", {"start": command})


def test_an_address_where_somebody_answers_is_not_taken(command: str) -> None:
    with Running(Scripted()) as running, pytest.raises(Lacking, match="somebody else answers"):
        connect(running.url, {"start": command})
