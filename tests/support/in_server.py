"""Runners behind the real client and server of a runner's process, which is a thread here."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from jax_engine.processes import runner_child, runner_process
from jax_engine.processes.runner_client import RemoteRunner, RemoteTicket, RunnerClient
from jax_engine.step import Step
from tests.support.patience import HANG_S


class ThreadChild:
    """Stands for a `subprocess.Popen`."""

    pid = 0

    def __init__(self, folder: str, runners: list[Any]) -> None:
        self.stdin = self
        self._status: int | None = None

        def run() -> None:
            self._status = runner_process.serve(folder, lambda *given: (None, runners))

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def poll(self) -> int | None:
        return self._status

    def wait(self, timeout: float = HANG_S) -> int | None:
        self._thread.join(HANG_S)
        return self._status

    def kill(self) -> None:
        raise AssertionError("a thread was to be killed")

    def close(self) -> None:
        pass


class Remote(RemoteRunner):
    """A runner behind a client, of which tests may see what the runner itself has.

    Each launch is waited for, so that they see it when the step was carried out.
    """

    def __init__(self, client: RunnerClient, place: int, runner: Any, server: Any) -> None:
        super().__init__(client, place, runner.capabilities)
        self._runner, self._server = runner, server

    def launch(self, step: Step) -> RemoteTicket:
        ticket = super().launch(step)
        self.host_room([])
        return ticket

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    @property
    def _tickets(self) -> Any:
        return _ByTicket(self._server)


class _ByTicket:
    def __init__(self, server: Any) -> None:
        self._server = server

    def __getitem__(self, ticket: RemoteTicket) -> Any:
        return self._server._tickets[ticket.number]


@contextmanager
def in_servers() -> Iterator[Any]:
    """Inside, `wrap(runner)` gives one behind a server of its own, `wrap(runner, like)` behind the
    same server as `like`.
    """
    clients: list[RunnerClient] = []
    servers: list[Any] = []

    class Server(runner_process.RunnerServer):
        def __init__(self, send: Any) -> None:
            super().__init__(send)
            servers.append(self)

    def wrap(runner: Any, like: Remote | None = None) -> Remote:
        if like is not None:
            like._server.runners.append(runner)
            return Remote(like.client, len(like._server.runners) - 1, runner, like._server)
        runners = [runner]
        with (
            patch.object(runner_child, "start_child", _starts(runners)),
            patch.object(runner_process, "live_as_child", lambda folder: None),
            patch.object(runner_process, "_send_lines", lambda reports, level: None),
            patch.object(runner_process, "RunnerServer", Server),
        ):
            clients.append(RunnerClient("", [None], step_timeout=HANG_S))
        return Remote(clients[-1], 0, runner, servers[-1])

    try:
        yield wrap
    finally:
        for client in clients:
            client.close()


def _starts(runners: list[Any]) -> Any:
    return lambda module, folder, variables, inherited: ThreadChild(folder, runners)
