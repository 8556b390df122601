"""Processes that meet in shared memory: they get what each has, and nobody waits for ever."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cpu_kernels.meeting.shared_memory import MOST, SharedMemory
from tests.meta.trees import ROOT
from tests.support.patience import HANG_S

type Processes = list[subprocess.Popen[str]]


@contextmanager
def meeting(size: int, what: str) -> Iterator[tuple[Processes, SharedMemory]]:
    memory = SharedMemory(size)
    command = [sys.executable, "-m", "tests.kernels.meeting"]
    made = [
        subprocess.Popen(
            [*command, str(rank), str(size), str(memory.fd), what],
            cwd=ROOT, pass_fds=[memory.fd], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for rank in range(size)
    ]  # fmt: skip
    try:
        yield made, memory
    finally:
        for one in made:
            one.kill()
            one.communicate()
        memory.close()


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3])
def test_all_get_what_each_has(size: int) -> None:
    with meeting(size, "gathers") as (made, _):
        for one in made:
            said = one.communicate(timeout=HANG_S)
            assert one.returncode == 0, said


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.slow
def test_nobody_waits_for_one_that_does_not_come_once_that_is_known(size: int) -> None:
    with meeting(size, "waits") as (made, memory):
        for one in made:
            assert one.stdout is not None and one.stdout.readline() == "met\n", one.communicate()
        made[-1].kill()
        assert all(one.poll() is None for one in made[:-1])
        memory.abort()
        for one in made[:-1]:
            assert one.communicate(timeout=HANG_S)[0] == "went on\n"


def test_memory_is_as_at_first_once_it_is_reset() -> None:
    memory = SharedMemory(3)
    other = SharedMemory(3, os.dup(memory.fd))
    assert not memory._words.any()
    memory.abort()
    other._words[8 * (1 + MOST) - 1] = 5
    assert memory._words[0] == 1 and memory._words[8 * (1 + MOST) - 1] == 5
    memory.reset()
    assert not other._words.any()
    for one in (memory, other):
        one.close()
