"""Which process of a group this is, and where the memory lies that it shares with the others.

Programs in XLA's cache, and kernels in Numba's, are the same in each process. So neither holds an
address or a rank: a kernel asks `place`, a C function that each process makes for itself.
"""

import numpy as np
from numba import cfunc

from cpu_kernels.calls.frame import HANDLER
from cpu_kernels.compiling.jit import inner
from cpu_kernels.meeting.shared_memory import CHUNK, HEADER, LINE, SharedMemory
from cpu_kernels.simd.memory import c_function, name_function

SYMBOL = "jax_engine_meeting_place"
ADDRESS, RANK, SIZE = 0, 1, 2  # words of what `place` returns

_here = np.zeros(3, np.int64)


def _declare() -> object:
    where = int(_here.ctypes.data)

    def place(nothing: int) -> int:
        return where

    made = cfunc(HANDLER)(place)
    name_function(SYMBOL, made.address)
    return made


_made = _declare()  # keeps its code
_held: list[SharedMemory] = []
place = c_function(SYMBOL)


def take_place(memory: SharedMemory, rank: int) -> None:
    """Says where the shared memory is, and which of its processes this is, until this one ends."""
    _here[:] = memory.address, rank, memory.size
    _held.append(memory)


@inner
def line_of(address: int, rank: int) -> int:
    """Where it says how often a process has come."""
    return address + 8 * LINE * (1 + rank)


@inner
def buffer_of(address: int, rank: int, turn: int) -> int:
    """Where a process puts what it brings."""
    return address + HEADER + CHUNK * (2 * rank + (turn & 1))
