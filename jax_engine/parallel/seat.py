"""Which of several processes that share a model this one is.

On a CPU each process is a device: it has one share of the weights and of the KV cache, and no mesh.
"""

import os
from typing import NamedTuple

from cpu_kernels.meeting.memory import SharedMemory
from jax_engine.errors import ConfigError


class Seat(NamedTuple):
    """What a process gets to know before it builds its share.

    Attributes:
        rank: From 0.
        size: How many processes there are.
        memory: The memory in which they meet: an inherited descriptor, or a path to open.
    """

    rank: int
    size: int
    memory: int | str

    def opened(self) -> SharedMemory:
        """The memory, mapped into this process."""
        where = self.memory
        own = os.dup(where) if isinstance(where, int) else os.open(where, os.O_RDWR | os.O_CLOEXEC)
        return SharedMemory(self.size, own)


def seats(size: int) -> tuple[SharedMemory, list[Seat]]:
    """New memory for so many processes, and their seats."""
    memory = SharedMemory(size)
    return memory, [Seat(rank, size, memory.fd) for rank in range(size)]


_own: Seat | None = None


def take_seat(seat: Seat) -> None:
    """Makes this process one of several, until it ends.

    Raises:
        ConfigError: The kernels with which they meet do not run here.
    """
    global _own
    from cpu_kernels.compiling.availability import failure, failure_on_demand

    reason = failure() or failure_on_demand("cpu_kernels.meeting")
    if reason is not None:
        raise ConfigError(
            f"tensor_parallel_size {seat.size} needs the kernels for this CPU, with which its "
            f"processes meet ({reason}): set distributed_executor_backend='uni' and "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={seat.size}"
        )
    from cpu_kernels.meeting.place import take_place

    take_place(seat.opened(), seat.rank)
    _own = seat


def own_rank() -> int | None:
    """Which of several processes this is; None: it is alone with its devices."""
    return None if _own is None else _own.rank
