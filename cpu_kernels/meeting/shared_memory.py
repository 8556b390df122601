"""The memory that processes share in which they meet: made by one, opened by the others.

It has no name that somebody would have to remove: it is gone with the last process that has it.

Words: ABORTED, then a cache line for each process with how often it has come. Behind them two
buffers of CHUNK bytes for each process, used in turns. A process that has come for turn n + 1 has
read all of turn n, so a buffer of turn n may be written again when all have come for n + 1.
"""

import mmap
import os

import numpy as np

ABORTED, LINE = 0, 8  # words
HEADER = 1 << 16  # bytes before the buffers
CHUNK = 1 << 20
MOST = HEADER // 8 // LINE - 1  # processes


class SharedMemory:
    """Memory in which `size` processes meet, mapped into this one.

    Args:
        size: At most MOST.
        fd: The descriptor of one that exists; None: it is made.

    Attributes:
        fd: A process that inherits it can open the memory.
        address: Where it lies in this process.

    Raises:
        OSError: The system has no memory for it, or no such descriptor.
    """

    def __init__(self, size: int, fd: int | None = None) -> None:
        self.size = size
        length = HEADER + 2 * CHUNK * size
        if fd is None:
            fd = os.memfd_create("jax-engine", os.MFD_CLOEXEC)
            os.ftruncate(fd, length)
        self.fd = fd
        self._words = np.frombuffer(mmap.mmap(fd, length), np.int64)
        self.address = int(self._words.ctypes.data)

    def abort(self) -> None:
        """From now on nobody waits for others, and what they gather means nothing."""
        self._words[ABORTED] = 1

    @property
    def aborted(self) -> bool:
        """Whether `abort` was called since the last `reset`, by any process."""
        return bool(self._words[ABORTED])

    def reset(self) -> None:
        """As it was at first. No process may be inside of a step."""
        self._words[: HEADER // 8] = 0

    def close(self) -> None:
        """Gives the descriptor back; the memory stays where it is mapped."""
        os.close(self.fd)
