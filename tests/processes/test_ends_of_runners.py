"""A runner's process dies, stops, hangs or raises, at any call: nobody waits, nothing is left."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from cpu_kernels.meeting.shared_memory import SharedMemory
from jax_engine import LLMEngine, RequestOutputKind, SamplingParams
from jax_engine.engine.calls import Calls
from jax_engine.errors import EngineDeadError, StepFailedError
from jax_engine.parallel.collectives import ProcessRank
from jax_engine.processes import runner_child, runner_client
from jax_engine.processes.runner_child import ProcessGroup
from jax_engine.processes.runner_client import RemoteRunner, RunnerClient
from jax_engine.processes.runner_messages import Heartbeat
from jax_engine.step import Capabilities
from tests.support.builders import SETTINGS, pair_without_device
from tests.support.patience import HANG_S, until
from tests.support.stub_process import ENDS, MODULE, Grief

pytestmark = pytest.mark.usefixtures("patient_runners")
SIZES = Capabilities(3, 4, 10, 0, 10, 64)
NEVER = Grief("raises", "launch", 10**6)
SHORT_S = 2.0
PROMPTS = [[0, 1, 2], [1, 1], [2]]
PARAMS = [
    SamplingParams(max_tokens=9, ignore_eos=True, output_kind=RequestOutputKind.FINAL_ONLY, **one)
    for one in ({"temperature": 0.0}, {"n": 2, "seed": 1}, {"seed": 2, "allowed_token_ids": [0, 1]})
]


@contextmanager
def engine(grief: Grief | None, ahead: bool, ranks: int = 1, whose: int = 0) -> Iterator[LLMEngine]:
    """On a runner of other processes, in which this happens; None: on one in this process.

    Args:
        ranks: How many processes there are.
        whose: The one to which it happens.
    """
    clients: list[RunnerClient] = []

    def wrap(stub: Any) -> Any:
        if grief is None:
            return stub
        memories = [SharedMemory(ranks)] if ranks > 1 else []
        seats = [
            ProcessRank(rank, ranks, memories[0].fd) if memories else None for rank in range(ranks)
        ]
        griefs = [grief if rank == whose else NEVER for rank in range(ranks)]
        given = [(stub.capabilities, *each) for each in zip(griefs, seats, strict=True)]
        timeout = SHORT_S if grief.what == "spins" else HANG_S
        clients.append(RunnerClient(MODULE, given, memories=memories, step_timeout=timeout))
        return RemoteRunner(clients[0], 0, clients[0].known[0])

    made, _ = pair_without_device(SETTINGS, ahead=ahead, wrap=wrap)
    yield made
    for client in clients:
        client.close()


def run(calls: Calls, made: LLMEngine) -> list[list[list[int]]]:
    requests = [
        made.check_request({"prompt_token_ids": prompt}, params)
        for prompt, params in zip(PROMPTS, PARAMS, strict=True)
    ]
    return [[one.token_ids for one in each.outputs] for each in calls.run(requests, False)]


def folders_of(client: RunnerClient) -> list[str]:
    return [child.folder for child in client._children]


def folder_of(client: RunnerClient) -> str:
    return folders_of(client)[0]


def is_gone(pid: int) -> bool:
    """Whether there is no such process, not even one that was not waited for."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.slow
@given(
    what=st.sampled_from([*ENDS, "raises"]),
    method=st.sampled_from(["launch", "collect", "sample"]),
    after=st.integers(0, 6),
    ahead=st.booleans(),
    whose=st.sampled_from([None, 0, 1]),
)
@settings(max_examples=5)
@example(what="waits", method="collect", after=1, ahead=True, whose=None)
@example(what="spins", method="launch", after=2, ahead=False, whose=None)
@example(what="killed", method="launch", after=1, ahead=True, whose=1)
@example(what="stopped", method="launch", after=2, ahead=False, whose=0)
@example(what="waits", method="launch", after=2, ahead=True, whose=1)
@example(what="raises", method="launch", after=3, ahead=True, whose=1)
def test_a_runner_ends_at_any_call(
    what: str, method: str, after: int, ahead: bool, whose: int | None
) -> None:
    """All requests end with a typed error, and those that come later; no process, no socket.

    Of a runner of one process, or of one of two processes, which wait for each other in each step.
    """
    event(what)
    ranks = {"ranks": 1} if whose is None else {"ranks": 2, "whose": whose}
    with engine(None, ahead) as made:
        wanted = run(Calls(made), made)
    with (
        engine(Grief(what, method, after), ahead, **ranks) as made,
        pytest.MonkeyPatch.context() as patch,
    ):
        calls, runner = Calls(made), made.worker
        assert isinstance(runner, RemoteRunner)
        if what == "stopped":
            patch.setattr(runner_child, "SILENCE_S", SHORT_S)
            patch.setattr(runner_child, "START_S", SHORT_S)
        if what == "waits":
            patch.setattr(runner_child, "STILL_S", SHORT_S)
        if what == "raises":
            with pytest.raises(StepFailedError, match="no such luck"):
                run(calls, made)
            assert run(calls, made) == wanted
            return
        with pytest.raises(EngineDeadError, match=ENDS[what]):
            run(calls, made)
        assert all(map(is_gone, runner.client.pids))
        assert not any(map(os.path.exists, folders_of(runner.client)))
        with pytest.raises(EngineDeadError, match=ENDS[what]):
            run(calls, made)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_without_grief_it_is_the_same(ranks: int) -> None:
    with engine(None, True) as made:
        wanted = run(Calls(made), made)
    with engine(NEVER, True, ranks) as made:
        calls = Calls(made)
        assert run(calls, made) == run(calls, made) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("whose", [0, 1])
def test_processes_that_carry_out_different_steps_have_failed(whose: int) -> None:
    """The requests end, and new ones are computed by processes that agree again."""
    with engine(None, True) as made:
        wanted = run(Calls(made), made)
    with engine(Grief("differs", "collect", 3), True, 2, whose) as made:
        calls = Calls(made)
        with pytest.raises(StepFailedError, match="rank 1 has carried out another one than rank 0"):
            run(calls, made)
        assert run(calls, made) == run(calls, made) == wanted


def test_one_that_waits_for_another_that_computes_is_not_stuck() -> None:
    fate = ProcessGroup()
    fate.beats |= {0: Heartbeat(0.0, 60.0), 1: Heartbeat(5.0, 0.0)}
    assert fate.stillness() == 0.0
    fate.beats[1] = Heartbeat(None, None)
    assert fate.stillness() == 60.0
    fate.beats[1] = Heartbeat(5.0, 13.0)
    assert fate.stillness() == 13.0


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_an_idle_runner_is_missed_at_once(ranks: int) -> None:
    with engine(NEVER, True, ranks) as made:
        runner: Any = made.worker
        os.kill(runner.client.pids[-1], signal.SIGKILL)
        until(runner.client.problem)
        assert all(map(is_gone, runner.client.pids))
        with pytest.raises(EngineDeadError, match="signal 9"):
            runner.host_room([])
        with pytest.raises(EngineDeadError, match="signal 9"):
            run(Calls(made), made)


@pytest.mark.slow
def test_a_runner_that_was_shut_down_says_so() -> None:
    client = RunnerClient(MODULE, [(SIZES, NEVER, None)])
    assert client.known == [SIZES] and client.problem() is None
    client.close()
    assert is_gone(client.pids[0]) and not Path(folder_of(client)).exists()
    with pytest.raises(EngineDeadError, match="was shut down"):
        client.ask(0, "recover")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:.*fork:RuntimeWarning")
def test_a_fork_of_the_driver_ends_nothing() -> None:
    client = RunnerClient(MODULE, [(SIZES, NEVER, None)])
    if (pid := os.fork()) == 0:
        client.close()
        os._exit(0)
    os.waitpid(pid, 0)
    assert client.ask(0, "host_room", []) is True
    assert Path(folder_of(client)).exists()
    client.close()


@pytest.mark.slow
def test_a_client_that_nobody_has_ends_its_process() -> None:
    client = RunnerClient(MODULE, [(SIZES, NEVER, None)])
    pid, folder = client.pids[0], Path(folder_of(client))
    del client
    assert is_gone(pid) and not folder.exists()


KILLS_ITSELF = "import os; os.kill(os.getpid(), 9)"


@pytest.mark.parametrize(
    ("code", "says"), [("exit(3)", "exit status 3"), (KILLS_ITSELF, "signal 9")]
)
def test_a_process_that_never_connects_is_no_hang(
    code: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: Any, **__: Any) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)

    monkeypatch.setattr(runner_child, "start_child", start)
    with pytest.raises(EngineDeadError, match=says):
        RunnerClient(MODULE, [None])


@pytest.mark.slow
def test_a_process_that_cannot_build_says_why() -> None:
    with pytest.raises(TypeError, match="cannot unpack") as caught:
        RunnerClient(MODULE, [5])
    assert "in build" in caught.value.__notes__[0]


def test_a_process_that_is_stopped_before_it_beats_is_no_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Long before the time in which Python itself may start."""
    monkeypatch.setattr(runner_child, "SILENCE_S", SHORT_S)
    start = runner_child.start_child

    def stopped(*given: Any, **more: Any) -> Any:
        child = start(*given, **more)
        os.kill(child.pid, signal.SIGSTOP)
        return child

    monkeypatch.setattr(runner_child, "start_child", stopped)
    with pytest.raises(EngineDeadError, match="has said nothing"):
        RunnerClient(MODULE, [None])


def test_what_cannot_be_pickled_starts_nothing() -> None:
    with pytest.raises((AttributeError, TypeError), match="pickle"):
        RunnerClient(MODULE, [lambda: None])


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("ends_by", [signal.SIGKILL, signal.SIGTERM, None])
def test_the_process_ends_with_its_driver(ends_by: int | None, stopped: bool) -> None:
    """However that ends, and though it was stopped before; and it takes the folder with it."""
    code = """
import sys
from tests.processes.test_ends_of_runners import MODULE, NEVER, SIZES, RunnerClient, folder_of
client = RunnerClient(MODULE, [(SIZES, NEVER, None)])
print(client.pids[0], folder_of(client), flush=True)
sys.stdin.read()
"""
    driver = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert driver.stdin is not None and driver.stdout is not None
    pid, folder = driver.stdout.readline().split()
    if stopped:
        os.kill(int(pid), signal.SIGSTOP)
    if ends_by is None:
        driver.stdin.close()
    else:
        driver.send_signal(ends_by)
    driver.wait(HANG_S)
    until(lambda: not runs(int(pid)), "the end of the runner's process")
    until(lambda: not Path(folder).exists(), "the end of its folder")


def runs(pid: int) -> bool:
    """Whether a process of no child of this one runs; nobody may wait for a zombie here."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_devices_are_forced_before_the_process_imports_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0")
    assert runner_client.forced_devices(1) == {}
    variables = runner_client.forced_devices(3)
    command = [sys.executable, "-c", "import jax; print(jax.device_count())"]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, check=True)
    assert done.stdout == b"3\n"
    assert "optimization_level=0" in variables["XLA_FLAGS"]
