"""A process of a runner that is a Ray actor, on the machine of its driver.

Ray starts it, and gives it what it needs to know. From then on it is as any other: it listens to
the same sockets, and the driver watches and ends it by its process id, since nothing that Ray
offers ends an actor that was stopped, or sees one that waits for ever, within seconds.
"""

import ctypes
import importlib
import os
import select
import shutil
import signal
import sys
import threading
from collections.abc import Mapping, Sequence

from jax_engine.errors import ConfigError, EngineDeadError, need
from jax_engine.processes.child_process import RayChild

START_S = 60.0  # for Ray to start a process
INSTALL = "'jax-engine[ray]'"
OWN = "RAY_"  # how variables begin that Ray sets for an actor


class RayHost:
    """Ray, in which actors are started: that of the user, or one of its own, which ends with it.

    Raises:
        MissingPackageError: Ray is not installed.
        ConfigError: The driver is on a machine that is none of Ray's, or not on Linux.
    """

    def __init__(self) -> None:
        what = "distributed_executor_backend='ray'"
        if not hasattr(os, "pidfd_open"):
            raise ConfigError(f"{what} needs Linux, got another system: leave it out")
        need("ray", what, install=INSTALL)
        import ray

        self._ray = ray
        self._holds = False
        self._check_here()

    def _check_here(self) -> None:
        """
        Raises:
            ConfigError: The driver is on a machine that is none of Ray's.
        """
        if self._ray.util.client.ray.is_connected():
            raise ConfigError(
                "distributed_executor_backend='ray' starts actors on the machine of its driver, "
                "where they meet in shared memory, got a driver that is connected to another "
                "machine (ray://): run it there"
            )

    def start(
        self,
        module: str,
        folder: str,
        *,
        variables: Mapping[str, str] | None = None,
        inherited: Sequence[int] = (),
    ) -> RayChild:
        """As `start_child`, but an actor inherits nothing.

        Raises:
            ConfigError: Ray is on another machine.
            EngineDeadError: Ray, or a process of it, did not start, or ended.
        """
        ray = self._ray
        if not self._holds:
            _hold()
            self._holds = True
            self._check_here()
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        options = {"num_cpus": 0, "max_restarts": 0, "scheduling_strategy": here}
        actor = ray.remote(actor_class()).options(**options).remote()
        environment = {**os.environ, **(variables or {})}
        given = list(sys.path), os.getcwd(), environment, os.getpid()
        try:
            pid = ray.get(actor.prepare.remote(*given), timeout=START_S)
        except ray.exceptions.RayError as error:
            ray.kill(actor)
            raise EngineDeadError(f"a Ray actor did not start: {error}") from error
        return RayChild(actor, pid, actor.serve.remote(module, folder))

    def close(self) -> None:
        """Ends Ray if this, or another one, has started it, and no other is left."""
        if self._holds:
            self._holds = False
            _release()


_lock = threading.Lock()
_holders = 0
_own = False


def _hold() -> None:
    global _holders, _own
    import ray

    with _lock:
        if not ray.is_initialized():
            try:
                ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False)
            except Exception as error:  # Ray's are of many kinds
                raise EngineDeadError(f"Ray did not start: {error}") from error
            _own = True
        _holders += 1


def _release() -> None:
    global _holders, _own
    import ray

    with _lock:
        _holders -= 1
        if _own and not _holders:
            _own = False
            ray.shutdown()


def actor_class() -> type:
    """The class of an actor: local, so that Ray sends it whole to where no module is found yet."""

    class JaxEngineRunner:
        def prepare(
            self, path: list[str], folder: str, variables: dict[str, str], driver: int
        ) -> int:
            """Makes this process like one that the driver has started; returns its id."""
            own = {name: value for name, value in os.environ.items() if name.startswith(OWN)}
            os.environ.clear()
            os.environ.update({**variables, **own})
            os.chdir(folder)
            sys.path[:] = list(dict.fromkeys([*path, *sys.path]))
            self.driver = os.pidfd_open(driver)
            # One that was stopped goes on when Ray's own process ends, and sees its driver's end.
            ctypes.CDLL(None).prctl(1, signal.SIGCONT)  # PR_SET_PDEATHSIG
            return os.getpid()

        def serve(self, module: str, folder: str) -> None:
            """Runs the process of a runner until it is told to end."""
            from jax_engine.processes.ray_actor import end_with
            from jax_engine.processes.runner_process import serve

            build = importlib.import_module(module).build
            serve(folder, build, lambda folder: end_with(self.driver, folder))
            import ray

            ray.actor.exit_actor()

    return JaxEngineRunner


def end_with(driver: int, folder: str) -> None:
    """Ends this process when its driver has ended, and removes the folder of their sockets.

    Args:
        driver: A descriptor of the process.
    """

    def look() -> None:
        ending = select.poll()
        ending.register(driver, select.POLLIN)
        ending.poll()
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=look, daemon=True).start()
