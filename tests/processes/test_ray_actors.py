"""`distributed_executor_backend="ray"`: actors of this machine, with the same bits and ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cpu_kernels.meeting.shared_memory import SharedMemory
from jax_engine import LLM, LLMEngine
from jax_engine.engine.calls import Calls
from jax_engine.errors import ConfigError, EngineDeadError, MissingPackageError
from jax_engine.parallel.collectives import ProcessRank
from jax_engine.processes import runner_child
from jax_engine.processes.ray_actor import RayHost
from jax_engine.processes.runner_client import RemoteRunner, RunnerClient
from tests.engine.test_through_bytes import SETTINGS as OF_BYTES
from tests.engine.test_through_bytes import outputs
from tests.processes.test_any_process_at_any_step import gone, model
from tests.processes.test_ends_of_runners import NEVER, SHORT_S, folders_of, run
from tests.support.builders import SETTINGS, pair_without_device
from tests.support.devices import for_cpu_kernels
from tests.support.patience import HANG_S, until
from tests.support.stub_process import ENDS, MODULE, Grief

ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.usefixtures("patient_runners"),
    pytest.mark.slow,
    for_cpu_kernels("actors meet by a kernel for a CPU"),
    pytest.mark.filterwarnings("ignore:.*fork:RuntimeWarning", "ignore:.*fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning"),
]
of_bytes = model  # a checkpoint with a tokenizer


@pytest.fixture(scope="module")
def users_ray() -> Iterator[None]:
    """Ray, as a user has started it."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


def on_actors(griefs: list[Grief]) -> tuple[RunnerClient, LLMEngine]:
    """An engine whose runners are actors that meet in each step, and come to grief."""
    clients: list[RunnerClient] = []

    def wrap(stub: Any) -> Any:
        memory = SharedMemory(len(griefs))
        path = f"/proc/{os.getpid()}/fd/{memory.fd}"
        given = [
            (stub.capabilities, grief, ProcessRank(rank, len(griefs), path))
            for rank, grief in enumerate(griefs)
        ]
        clients.append(RunnerClient(MODULE, given, memories=[memory], host=RayHost()))
        return RemoteRunner(clients[0], 0, clients[0].known[0])

    made, _ = pair_without_device(SETTINGS, ahead=True, wrap=wrap)
    return clients[0], made


@pytest.mark.usefixtures("users_ray")
def test_every_kind_of_request_has_the_bits_of_mp(of_bytes: str) -> None:
    """The model may be in one actor. Ray, which the user has started, goes on."""
    given = {**OF_BYTES, "num_gpu_blocks_override": 120, "batch_invariant": True}
    wanted = outputs(
        LLM(of_bytes, **given, tensor_parallel_size=2, distributed_executor_backend="mp")
    )
    for size in (1, 2):
        llm = LLM(of_bytes, **given, tensor_parallel_size=size, distributed_executor_backend="ray")
        client = llm.llm_engine._client
        assert client is not None and len(client.pids) == size
        names = [Path(f"/proc/{pid}/cmdline").read_text() for pid in client.pids]
        assert all(name.startswith("ray::") for name in names)
        assert outputs(llm) == wanted
        with pytest.raises(ConfigError, match=r"start_profile .* got 'ray'"):
            llm.start_profile()
        client.close()
        assert all(map(gone, client.pids)) and ray.is_initialized()


@pytest.mark.slow
@pytest.mark.usefixtures("users_ray")
@pytest.mark.parametrize(("what", "whose"), [("killed", 1), ("stopped", 0), ("waits", 1)])
def test_the_end_of_one_actor_is_the_end_of_all(
    what: str, whose: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    griefs = [Grief(what, "launch", 3) if rank == whose else NEVER for rank in range(2)]
    client, made = on_actors(griefs)
    calls = Calls(made)
    if what == "stopped":
        monkeypatch.setattr(runner_child, "SILENCE_S", SHORT_S)
    if what == "waits":
        monkeypatch.setattr(runner_child, "STILL_S", SHORT_S)
    says = ENDS[what] if what in ("stopped", "waits") else f"rank {whose}.* ended"
    with pytest.raises(EngineDeadError, match=says):
        run(calls, made)
    assert all(map(gone, client.pids)) and not any(map(os.path.exists, folders_of(client)))
    with pytest.raises(EngineDeadError, match=says):
        run(calls, made)
    client.close()


OWN = """
import sys
from tests.processes.test_ray_actors import NEVER, folders_of, on_actors
client, made = on_actors([NEVER, NEVER])
print(*client.pids, *folders_of(client), flush=True)
sys.stdin.read()
client.close()
import ray
assert not ray.is_initialized()
"""


def below(pid: int) -> list[int]:
    """All processes below this one. A thread that ends meanwhile is left out."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            for child in map(int, path.read_text().split()):
                found += [child, *below(child)]
    return found


@pytest.mark.parametrize("number", [None, signal.SIGKILL])
def test_nothing_is_left_of_a_ray_that_the_engine_has_started(number: int | None) -> None:
    """When it is closed, and when its process is killed while an actor is stopped.

    Killed, two agents of Ray itself stay for a minute: only Ray could end them at once.
    """
    driver = subprocess.Popen(
        [sys.executable, "-c", OWN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert driver.stdin is not None and driver.stdout is not None
    *pids, first, second = driver.stdout.readline().split()
    every = below(driver.pid)
    assert set(map(int, pids)) <= set(every)
    agents = [pid for pid in every if "Agent" in Path(f"/proc/{pid}/cmdline").read_text()]
    if number is None:
        driver.stdin.close()
        assert driver.wait(HANG_S) == 0
    else:
        os.kill(int(pids[1]), signal.SIGSTOP)
        driver.kill()
        driver.wait(HANG_S)
        every = [pid for pid in every if pid not in agents]
    until(lambda: all(map(gone, every)), "the end of all processes")
    until(lambda: not any(map(os.path.exists, (first, second))), "the end of the folders")
    for pid in agents:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_without_the_package_the_command_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'jax-engine\[ray\]'"):
        RayHost()


def test_a_driver_on_another_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """They could not meet in shared memory."""
    monkeypatch.setattr(ray.util.client.ray, "is_connected", lambda: True)
    with pytest.raises(ConfigError, match="connected to another machine"):
        RayHost()


def test_a_cluster_that_is_not_there_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(**given: Any) -> None:
        raise ConnectionError("no cluster")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", absent)
    with pytest.raises(EngineDeadError, match="Ray did not start: no cluster"):
        RunnerClient(MODULE, [None], host=RayHost())
