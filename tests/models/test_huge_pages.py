"""Arrays move to huge pages under their readers, and hold what they held."""

import ctypes
import mmap
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_engine.models import huge_pages
from jax_engine.models.huge_pages import HUGE_PAGE, can_gather, empty, gather, gather_in_background
from jax_engine.models.weight_loader import aligned_empty
from tests.support.patience import HANG_S

ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")
HANDED_OUT_AT_ONCE = ENABLED.exists() and "[always]" in ENABLED.read_text()
gathers = pytest.mark.skipif(not can_gather(), reason="needs MADV_COLLAPSE, Linux 6.1")


def huge_bytes(address: int) -> int:
    """How many bytes of the mapping at an address lie on huge pages."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, rest = line.partition(" ")
        if "-" in name:
            start, stop = (int(part, 16) for part in name.split("-"))
            inside = start <= address < stop
        elif inside and name == "AnonHugePages:":
            return int(rest.split()[0]) * 1024
    raise AssertionError(f"nothing is mapped at {address:x}")


def keep_apart(buffer: np.ndarray) -> None:
    """Gives a buffer a mapping of its own: Linux joins neighbours that have the same flags."""
    first = buffer.ctypes.data // mmap.PAGESIZE * mmap.PAGESIZE
    size = ctypes.c_size_t(buffer.ctypes.data + buffer.nbytes - first)
    assert ctypes.CDLL(None).madvise(ctypes.c_void_p(first), size, mmap.MADV_DONTDUMP) == 0


@gathers
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_weights_are_loaded_to_small_pages_and_gathered(dtype: jnp.dtype) -> None:
    neighbour = empty(8 * HUGE_PAGE)
    buffer = aligned_empty((5, 1 << 20), dtype)
    neighbour.fill(1)
    gather(neighbour.ctypes.data, neighbour.nbytes)
    keep_apart(buffer)
    buffer[...] = np.arange(1 << 20) % 251
    weights = jax.device_put(buffer)
    assert weights.unsafe_buffer_pointer() == buffer.ctypes.data
    middle = buffer.ctypes.data + buffer.nbytes // 2
    assert HANDED_OUT_AT_ONCE or huge_bytes(middle) == 0
    thread = gather_in_background([weights, jnp.zeros(3)])
    assert thread is not None
    thread.join()
    assert huge_bytes(middle) >= buffer.nbytes - 2 * HUGE_PAGE
    assert (np.asarray(weights) == np.arange(1 << 20) % 251).all()


def test_what_did_not_move_is_tried_again_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, arrays = [], [jnp.zeros(HUGE_PAGE), jnp.zeros(2 * HUGE_PAGE)]

    def gather(start: int, size: int) -> bool:
        asked.append(size // arrays[0].nbytes)
        return len(asked) == 1  # the first array at once, the other never

    monkeypatch.setattr(huge_pages, "can_gather", lambda: True)
    monkeypatch.setattr(huge_pages, "gather", gather)
    monkeypatch.setattr(huge_pages, "DELAY_S", 0)
    thread = gather_in_background(arrays)
    assert thread is not None
    thread.join()
    assert asked == [1, 2] + [2] * (huge_pages.ATTEMPTS - 1)


def test_nothing_is_done_for_small_arrays_or_where_it_cannot_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert gather_in_background([jnp.zeros(3)]) is None
    monkeypatch.setattr(huge_pages, "can_gather", lambda: False)
    assert gather_in_background([jnp.zeros(HUGE_PAGE)]) is None
    assert empty(3 * HUGE_PAGE).nbytes == 3 * HUGE_PAGE


@pytest.mark.slow
def test_no_thread_is_left_to_be_cut_off_when_a_program_ends() -> None:
    """Python ends daemon threads where they stand: in a foreign call, that aborts the process."""
    program = """
import atexit, threading
atexit.register(lambda: print([t.name for t in threading.enumerate()]))  # runs after ours
import jax.numpy as jnp
from jax_engine.models import huge_pages
huge_pages.can_gather, huge_pages.DELAY_S = lambda: True, 1e6
huge_pages.gather_in_background([jnp.zeros(huge_pages.HUGE_PAGE)])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=HANG_S
    )
    assert done.stdout == "['MainThread']\n"
