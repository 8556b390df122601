"""Loads weights to small pages of memory, and moves them to huge pages soon after.

Each decode step reads all weights, up to a fifth faster from pages of 2 MiB. But Linux has to make
room for those first, which can take longer than decoding the weights. So weights load to pages of
4 KiB, and a thread lets Linux gather them (MADV_COLLAPSE, Linux 6.1) while the first requests run.
"""

import atexit
import ctypes
import functools
import mmap
import threading
from collections.abc import Iterable
from weakref import WeakSet

import jax
import numpy as np

HUGE_PAGE = 2 << 20
MADV_COLLAPSE = 25
DELAY_S, ATTEMPTS = 0.5, 4  # the first token of a short prompt is out by then

_threads: WeakSet[threading.Thread] = WeakSet()
_ending = threading.Event()


def empty(size: int) -> np.ndarray:
    """Uninitialised bytes: on small pages if they can be gathered later, else NumPy's choice."""
    if size < HUGE_PAGE or not can_gather():
        return np.empty(size, np.uint8)
    return np.frombuffer(_small_pages(size), np.uint8)


def gather_in_background(arrays: Iterable[jax.Array]) -> threading.Thread | None:
    """Moves a CPU's arrays to huge pages, in a thread; None if there is nothing to do.

    They may be read and written meanwhile: only the place of their pages in memory changes.
    A program that ends earlier ends the thread first: a thread that Python itself cuts off, in a
    call of another library, can abort the process.
    """
    large = [array for array in arrays if array.nbytes > HUGE_PAGE]
    if not large or not can_gather():
        return None
    thread = threading.Thread(target=_gather_all, args=(large,), name="huge pages", daemon=True)
    thread.start()
    _threads.add(thread)
    return thread


def _gather_all(arrays: list[jax.Array]) -> None:
    """Tries several times, since Linux may not find room for all arrays at first."""
    for _ in range(ATTEMPTS):
        _ending.wait(DELAY_S)
        arrays = [one for one in arrays if not _ending.is_set() and not _gather(one)]
        if not arrays or _ending.is_set():
            return


def _gather(array: jax.Array) -> bool:
    return gather(array.unsafe_buffer_pointer(), array.nbytes)


@atexit.register
def _end_threads() -> None:
    _ending.set()
    for thread in list(_threads):
        thread.join()


@functools.cache
def can_gather() -> bool:
    """Tries whether this system can gather pages."""
    if not hasattr(mmap, "MAP_PRIVATE"):
        return False
    trial = np.frombuffer(_small_pages(2 * HUGE_PAGE), np.uint8)
    trial.fill(1)
    return gather(trial.ctypes.data, trial.nbytes)


def gather(start: int, size: int) -> bool:
    """Lets Linux move aligned stretches of 2 MiB to huge pages; returns whether it moved all."""
    first, last = -(-start // HUGE_PAGE) * HUGE_PAGE, (start + size) // HUGE_PAGE * HUGE_PAGE
    advise = getattr(ctypes.CDLL(None), "madvise", None)
    if advise is None or first >= last:
        return False
    length = ctypes.c_size_t(last - first)
    return bool(advise(ctypes.c_void_p(first), length, MADV_COLLAPSE) == 0)


def _small_pages(size: int) -> mmap.mmap:
    """Fresh memory. NumPy would ask for huge pages at once."""
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
