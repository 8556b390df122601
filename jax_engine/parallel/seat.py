"""Which of several processes that share a model this one is.

On a CPU each process is a device: it has one share of the weights and of the KV cache, and no mesh.
Those of one stage of the model meet in memory of their own.
"""

import os
from typing import NamedTuple

from cpu_kernels.meeting.memory import SharedMemory
from jax_engine.errors import ConfigError


class Seat(NamedTuple):
    """What a process gets to know before it builds its share.

    Attributes:
        rank: From 0, among the processes of its stage.
        size: How many processes its stage has.
        memory: The memory in which they meet: an inherited descriptor, or a path to open.
    """

    rank: int
    size: int
    memory: int | str
    stage: int = 0
    num_stages: int = 1

    def opened(self) -> SharedMemory:
        """The memory, mapped into this process."""
        where = self.memory
        own = os.dup(where) if isinstance(where, int) else os.open(where, os.O_RDWR | os.O_CLOEXEC)
        return SharedMemory(self.size, own)


def seats(size: int, num_stages: int = 1) -> tuple[list[SharedMemory], list[Seat]]:
    """New memory for each stage, of so many processes, and the seats: those of the first stage
    first.
    """
    memories = [SharedMemory(size) for _ in range(num_stages)]
    return memories, [
        Seat(rank, size, memory.fd, stage, num_stages)
        for stage, memory in enumerate(memories)
        for rank in range(size)
    ]


_own: Seat | None = None
_memory: SharedMemory | None = None


def take_seat(seat: Seat) -> None:
    """Makes this process one of several, until it ends.

    Raises:
        ConfigError: The kernels with which they meet do not run here.
    """
    global _own, _memory
    _own, _memory = seat, seat.opened()
    if seat.size == 1:
        return
    from cpu_kernels.compiling.availability import failure, failure_on_demand

    reason = failure() or failure_on_demand("cpu_kernels.meeting")
    if reason is not None:
        raise ConfigError(
            f"tensor_parallel_size {seat.size} needs the kernels for this CPU, with which its "
            f"processes meet ({reason}): set distributed_executor_backend='uni' and "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={seat.size}"
        )
    from cpu_kernels.meeting.place import take_place

    take_place(_memory, seat.rank)


def own_rank() -> int | None:
    """Which of several processes of a stage this is; None: it is alone with its devices."""
    return None if _own is None or _own.size == 1 else _own.rank


def own_stage() -> tuple[int, int]:
    """Which stage of the model this process has, and how many there are."""
    return (0, 1) if _own is None else (_own.stage, _own.num_stages)


def others_gave_up() -> bool:
    """Whether a process of this model has failed, so that nobody must wait for it."""
    return _memory is not None and _memory.aborted
