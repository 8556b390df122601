"""A `Runner` whose steps one or several other processes carry out, and the calls to them.

`RemoteRunner` is a runner like any other for its controller. `RunnerClient` sends its calls.

Each process gets each call, and all carry out the same steps. A process has a share of all layers,
or of the layers of one stage. The answers of the first process of the last stage count. The
processes of a stage report a digest of each step that they have carried out. If the digests
differ, the step has failed.
"""

import logging
import os
import pickle
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import zmq
from jaxtyping import Float, UInt32

from cpu_kernels.meeting.shared_memory import SharedMemory
from jax_engine.errors import EngineDeadError, StepFailedError
from jax_engine.processes.ray_actor import RayHost
from jax_engine.processes.runner_child import POLL_S, ProcessGroup, RunnerChild
from jax_engine.processes.runner_messages import Answer, Call, message
from jax_engine.processes.stage_link import Folders
from jax_engine.step import Capabilities, PreemptionCosts, Step, StepResult

STEP_TIMEOUT_S = 300.0  # of a step that computes, without what it compiles


class RunnerClient:
    """The processes of a runner, seen from the driver. One thread at a time calls it.

    Args:
        module: What runs in each process; its only argument is the folder of the sockets.
        settings: What each process builds its runners from, by rank; it must be possible to pickle
            it.
        num_devices: Devices that a process must have where the host's cores are the devices.
        variables: Environment variables to set in each process.
        memories: In which several processes meet, those of each stage in one of them, in the order
            of the ranks. They are this client's from now on.
        step_timeout: Seconds after which a call of a step has hung, compiling and waiting aside.
        host: What starts the processes, in place of `start_child`; it is this client's from now on.

    Attributes:
        known: What each process said when it was ready, by rank.

    Raises:
        EngineDeadError: A process ended, or was silent, while it started.
        Exception: A process could not build its runners, and this is why.
    """

    def __init__(
        self,
        module: str,
        settings: Sequence[Any],
        *,
        num_devices: int = 1,
        variables: Mapping[str, str] | None = None,
        memories: Sequence[SharedMemory] = (),
        step_timeout: float = STEP_TIMEOUT_S,
        host: RayHost | None = None,
    ) -> None:
        level = logging.getLogger("jax_engine").getEffectiveLevel()
        self._memories, self._fate = memories, ProcessGroup()
        self._each = len(settings) // max(1, len(memories))  # processes of a stage
        for memory in memories:
            weakref.finalize(self, memory.close)
        self._children: list[RunnerChild] = []
        self.close = weakref.finalize(self, _end_all, self._children, host, os.getpid())
        self._number = self._recovered = 0
        self._dropped: list[int] = []
        try:
            for rank in range(len(settings)):
                child = RunnerChild(
                    module,
                    self._fate,
                    rank=rank,
                    variables={**(variables or {}), **forced_devices(num_devices)},
                    inherited=[memories[rank // self._each].fd] if memories else [],
                    step_timeout=step_timeout,
                    start=None if host is None else host.start,
                )
                self._children.append(child)
            for rank, child in enumerate(self._children):
                folders = Folders(child.folder, self._folder_of(rank + self._each))
                self._send(child, [pickle.dumps((level, settings[rank], folders))])
            self.known = self._await(0)
        except BaseException:
            self.close()
            raise

    def _folder_of(self, rank: int) -> str | None:
        return self._children[rank].folder if rank < len(self._children) else None

    @property
    def pids(self) -> list[int]:
        """The ids of the processes, by rank."""
        return [child.pid for child in self._children]

    def problem(self) -> str | None:
        """Why it cannot be called any more; None if it can."""
        return self._fate.problem if self.close.alive else "the runner was shut down"

    def post(self, runner: int, method: str, *given: Any) -> int:
        """Calls a method, and does not wait. Returns the call's number.

        Raises:
            EngineDeadError: The processes have ended.
        """
        return self._post(runner, method, False, given, {})

    def ask(self, runner: int, method: str, *given: Any, **named: Any) -> Any:
        """Calls a method; returns what it returns in the last stage: True if it does in all.

        Raises:
            EngineDeadError: The processes have ended, or were ended because one was stuck.
            StepFailedError: They have carried out different steps.
            Exception: What the method raised, or a call before it that nobody waited for.
        """
        found = self.ask_stages(runner, method, *given, **named)
        return all(found) if isinstance(found[0], bool) else found[-1]

    def ask_stages(self, runner: int, method: str, *given: Any, **named: Any) -> list[Any]:
        """As `ask`; what the method returns in each stage."""
        if method == "recover":
            self._abort()
        found = self._await(self._post(runner, method, True, given, named))
        stages = [found[first:][: self._each] for first in range(0, len(found), self._each)]
        if method == "recover":
            for memory in self._memories:
                memory.reset()  # all have recovered, so nobody is inside of a step
        if isinstance(found[0], StepResult):
            for first, stage in enumerate(stages):
                _compare([each.digest for each in stage], first * self._each)
        return [all(stage) if isinstance(stage[0], bool) else stage[0] for stage in stages]

    def _abort(self) -> None:
        """Lets those go on who wait for one that has failed, and does not come."""
        for memory in self._memories:
            memory.abort()

    def _post(
        self, runner: int, method: str, waits: bool, given: tuple[Any, ...], named: dict[str, Any]
    ) -> int:
        number = self._number + 1
        dropped = self._dropped[:]  # another thread may add to it
        parts = message(Call(number, runner, method, waits, dropped), (given, named))
        self._number = number
        if method == "recover":
            self._recovered = number
        for child in self._children:
            self._send(child, parts)
        del self._dropped[: len(dropped)]
        return number

    def _send(self, child: RunnerChild, parts: list[bytes]) -> None:
        """It waits only for the process to connect, at its start."""
        self._check()
        while not child.send(parts):
            self._check()

    def _await(self, number: int) -> list[Any]:
        """What this call returned, by rank. Answers to calls before it are of those who gave up."""
        waiting = zmq.Poller()
        for child in self._children:
            waiting.register(child.answers, zmq.POLLIN)
        found: dict[int, Any] = {}
        while len(found) < len(self._children):
            ready = dict(waiting.poll(int(POLL_S * 1000)))
            if not ready:
                self._check()
            for rank, child in enumerate(self._children):
                if child.answers in ready and self._take(child, number, rank, found):
                    waiting.unregister(child.answers)
        return [value for _, value in sorted(found.items())]

    def _take(self, child: RunnerChild, number: int, rank: int, found: dict[int, Any]) -> bool:
        """Reads one answer; returns whether it is the one to this call."""
        header, body = child.answers.recv_multipart()
        answer = Answer(*pickle.loads(header))
        if answer.failed and answer.number >= self._recovered:
            self._abort()
            raise pickle.loads(body)
        if answer.number != number:
            return False
        found[rank] = pickle.loads(body)
        return True

    def _check(self) -> None:
        problem = self.problem()
        if problem is not None:
            raise EngineDeadError(problem)

    def ticket(self, number: int) -> "RemoteTicket":
        """The ticket of a step that this call launches."""
        return RemoteTicket(number, self._dropped)


class RemoteTicket:
    """A step of another process, which keeps what it computed as long as this object is there."""

    __slots__ = ("_dropped", "number")

    def __init__(self, number: int, dropped: list[int]) -> None:
        self.number, self._dropped = number, dropped

    def __del__(self) -> None:
        self._dropped.append(self.number)


def _compare(digests: list[bytes], first: int) -> None:
    """
    Args:
        first: The rank of the first of them.

    Raises:
        StepFailedError: They are not all the same.
    """
    for rank, digest in enumerate(digests, first):
        if digest != digests[0]:
            raise StepFailedError(
                f"a step failed: rank {rank} has carried out another one than rank {first} (digest "
                f"{digest.hex()}, and {digests[0].hex()}), which is a bug: report it"
            )


def forced_devices(count: int) -> dict[str, str]:
    """The variables of a process that is to have several devices where it has no GPU.

    JAX reads them when it is imported, so no process can change them for itself.
    """
    if count == 1:
        return {}
    flags = os.environ.get("XLA_FLAGS", "")
    return {"XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count={count}".strip()}


def _end_all(children: list[RunnerChild], host: RayHost | None, owner: int) -> None:
    """All are told to end before one is waited for. It is called once, and knows no client.

    Args:
        owner: The process that has them; a fork of it, which also comes to its end, has not.
    """
    if os.getpid() != owner:
        return
    for child in children:
        child.watch_no_more()
    for child in children:
        child.say_stop()
    for child in children:
        child.close()
    if host is not None:
        host.close()


class RemoteRunner:
    """Sends each step when it is launched, and waits where `Runner` says so.

    Its methods raise EngineDeadError once the process has ended, and what a method raised there. A
    step that failed after it was launched raises where the controller next waits.

    Args:
        client: The process.
        place: Which of its runners this is.
    """

    def __init__(self, client: RunnerClient, place: int, capabilities: Capabilities) -> None:
        self.client = client
        self._place, self._capabilities = place, capabilities

    @property
    def capabilities(self) -> Capabilities:
        """See `Runner`."""
        return self._capabilities

    def launch(self, step: Step) -> RemoteTicket:
        """Sends a step, which may be `Unread` from tickets of any runner of the process."""
        unread = step.unread
        if unread is not None:
            drawn = [ticket.number for ticket in unread.drawn]
            verified = None if unread.verified is None else unread.verified.number
            step = step._replace(unread=unread._replace(drawn=drawn, verified=verified))
        return self.client.ticket(self.client.post(self._place, "launch", step))

    def logits(self, ticket: RemoteTicket) -> Float[np.ndarray, "samples V"]:
        """See `Runner`."""
        found: np.ndarray = self._ask("logits", ticket.number)
        return found

    def sample(
        self,
        ticket: RemoteTicket,
        allowed: UInt32[np.ndarray, "samples words"] | None,
        processed: Float[np.ndarray, "samples V"] | None,
    ) -> None:
        """See `Runner`."""
        self.client.post(self._place, "sample", ticket.number, allowed, processed)

    def collect(self, ticket: RemoteTicket) -> StepResult:
        """See `Runner`."""
        result: StepResult = self._ask("collect", ticket.number)
        return result

    def recover(self) -> None:
        """See `Runner`."""
        self._ask("recover")

    def host_room(self, blocks: list[int]) -> bool:
        """See `Runner`."""
        return bool(self._ask("host_room", blocks))

    def measure_costs(self) -> PreemptionCosts:
        """See `Runner`."""
        each = self.client.ask_stages(self._place, "measure_costs")
        blocks = sum(one.seconds_per_block for one in each)  # a step goes through all stages
        return PreemptionCosts(blocks, sum(one.seconds_per_token for one in each))

    def compile_ahead(
        self, max_num_batched_tokens: int, max_num_seqs: int, *, use_tqdm: bool = True
    ) -> int:
        """See `Runner`."""
        limits = max_num_batched_tokens, max_num_seqs
        return int(self._ask("compile_ahead", *limits, use_tqdm=use_tqdm))

    def set_weights(self, model: Any) -> None:
        """Sends the weights: an engine has no need of it, as the process reads its own."""
        self._ask("set_weights", model)

    def _ask(self, method: str, *given: Any, **named: Any) -> Any:
        return self.client.ask(self._place, method, *given, **named)
