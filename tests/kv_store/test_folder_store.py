"""The store's threads: blocks come back, faults are counted, and nobody waits for ever."""

import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jax_engine.core.prefix_cache import Node
from jax_engine.kv_store import folder as folder_module
from jax_engine.kv_store import folder_store
from jax_engine.kv_store.block_file import BlockForm, name_of
from jax_engine.kv_store.folder_store import BLOCKS_AT_ONCE, FolderStore
from tests.support.patience import HANG_S, until

FORM = BlockForm(b"f" * 32, 2, 24)
LIMIT = 2**20


def text(count: int, first: int = 0) -> list[Node]:
    """The nodes of a text of so many blocks."""
    nodes: list[Node] = []
    for index in range(count):
        nodes.append(Node(nodes[-1] if nodes else None, (first, index), None))
    return nodes


def contents(nodes: list[Node]) -> list[np.ndarray]:
    """Arrays of 8 blocks as a device hands them out; each block has its name's bytes."""
    rows = [np.frombuffer(name_of(node)[:24], np.float32).reshape(2, 3) for node in nodes]
    rows += [np.zeros((2, 3), np.float32)] * (-len(rows) % BLOCKS_AT_ONCE)
    return [np.stack(rows[i : i + BLOCKS_AT_ONCE]) for i in range(0, len(rows), BLOCKS_AT_ONCE)]


def stored(
    path: Path, nodes: list[Node], form: BlockForm = FORM, limit: int = LIMIT
) -> FolderStore:
    store = FolderStore(str(path), limit, form)
    store.store(nodes, contents(nodes))
    assert store.drain(HANG_S)
    return store


def found(store: FolderStore, nodes: list[Node]) -> int:
    """How many leading blocks the store has; each has the right contents."""
    parts = store.find(nodes, waits=True)
    assert parts is not None
    rows = [row for part in parts for row in part]
    for row, node in zip(rows, nodes, strict=False):
        assert row.tobytes() == name_of(node)[:24]
    store.forget_read()
    return len(rows)


@pytest.mark.parametrize("count", [1, 7, 8, 9, 40])
def test_blocks_come_back_after_a_restart(tmp_path: Path, count: int) -> None:
    nodes = text(count)
    stored(tmp_path, nodes).close()
    again = FolderStore(str(tmp_path), LIMIT, FORM)
    assert found(again, text(count + 3)) == count
    assert found(again, text(count, first=5)) == 0
    assert found(again, nodes[3:]) == max(0, count - 3)
    assert again.find([], waits=True) == []
    assert [node for node, _ in again.recent(100)] == nodes
    assert [place for _, place in again.recent(100)] == list(range(count))
    assert len(again.recent(2)) == min(2, count)
    assert again.stats.bytes_loaded == again.stats.blocks_loaded * 24


def test_only_texts_that_are_there_from_their_beginning_are_recent(tmp_path: Path) -> None:
    nodes = text(5)
    store = stored(tmp_path, nodes)
    other = text(2, first=9)
    store.store(other, contents(other))
    assert store.drain(HANG_S)
    (tmp_path / FORM.file_name(nodes[2])).unlink()
    assert [node for node, _ in store.recent(10)] == [*other, *nodes[:2]]
    store.use(nodes[:2])
    assert store.drain(HANG_S)
    assert [node for node, _ in store.recent(10)] == [*nodes[:2], *other]


def test_while_it_reads_the_answer_is_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stored(tmp_path, text(3))
    goes_on, plain = threading.Event(), folder_store.read_into

    def slow(*args: Any) -> None:
        assert goes_on.wait(HANG_S)
        plain(*args)

    monkeypatch.setattr(folder_store, "read_into", slow)
    assert store.find(text(3), waits=False) is None
    assert store.find(text(3), waits=False) is None
    goes_on.set()
    until(lambda: store.find(text(3), waits=False) is not None)
    assert found(store, text(3)) == 3


def test_a_folder_that_does_not_answer_is_asked_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = stored(tmp_path, text(3))
    goes_on = threading.Event()
    monkeypatch.setattr(folder_store, "READ_S", 0.05)
    monkeypatch.setattr(folder_store, "read_into", lambda *args: goes_on.wait(HANG_S))
    with caplog.at_level(logging.WARNING):
        assert store.find(text(3), waits=True) == []
    assert "has not answered" in caplog.text
    assert store.find(text(3), waits=False) == []
    goes_on.set()


def test_a_prompt_is_read_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stored(tmp_path, text(5))
    monkeypatch.setattr(folder_store, "MAX_READ_BYTES", 24 * 3)
    assert found(store, text(5)) == 3
    monkeypatch.setattr(folder_store, "MAX_READ_BYTES", 23)
    assert found(store, text(5)) == 0


def test_wrong_files_are_removed_and_written_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = text(4)
    store = stored(tmp_path, nodes)
    path = tmp_path / FORM.file_name(nodes[2])
    path.write_bytes(path.read_bytes()[:-5])
    with caplog.at_level(logging.WARNING):
        assert found(store, nodes) == 2
        path.write_bytes(b"")
        assert found(store, nodes) == 2
    assert caplog.text.count("computed anew") == 1 and store.stats.failures == 2
    assert not path.exists()
    store.store(nodes, contents(nodes))
    assert store.drain(HANG_S)
    assert found(store, nodes) == 4


def test_other_forms_do_not_meet(tmp_path: Path) -> None:
    """Another model's files, or those of another size of block, under their own names or ours."""
    nodes = text(3)
    stored(tmp_path, nodes)
    for form in (BlockForm(b"g" * 32, 2, 24), BlockForm(b"f" * 32, 2, 20)):
        other = FolderStore(str(tmp_path), LIMIT, form)
        for node in nodes:
            mine = tmp_path / form.file_name(node)
            if not mine.exists():
                mine.write_bytes((tmp_path / FORM.file_name(node)).read_bytes())
        assert found(other, nodes) == 0 and other.recent(10) == []
        stored(tmp_path, nodes)


def test_all_files_of_a_form_are_removed(tmp_path: Path) -> None:
    mine, others = stored(tmp_path, text(3)), BlockForm(b"g" * 32, 2, 24)
    other = stored(tmp_path, text(3), others)
    mine.remove_all()
    assert mine.drain(HANG_S)
    assert (found(mine, text(3)), found(other, text(3))) == (0, 3)


def test_too_much_that_waits_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_store, "MAX_WAITING_BYTES", 24 * 3)
    store = FolderStore(str(tmp_path), LIMIT, FORM)
    goes_on = threading.Event()
    store._tasks.put(lambda: bool(goes_on.wait(HANG_S)) and None)
    store.store(text(3), contents(text(3)))
    store.store(text(2, first=1), contents(text(2, first=1)))
    goes_on.set()
    assert store.drain(HANG_S)
    assert store.stats.stores_skipped == 2
    assert (found(store, text(3)), found(store, text(2, first=1))) == (3, 0)
    store.store(text(2, first=1), contents(text(2, first=1)))  # there is room again
    assert store.drain(HANG_S)
    assert found(store, text(2, first=1)) == 2


@pytest.mark.parametrize("fault", ["full", "forbidden", "a file in its place"])
def test_what_cannot_be_written_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    """Told once; what was written before stays, no half file is left, and later it goes on."""
    path = tmp_path / "kv"
    path.mkdir()
    store = stored(path, text(2))
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        if fault == "full":
            patch.setattr(folder_module, "open", _full, raising=False)
        elif fault == "forbidden":
            patch.setattr(folder_module.os, "replace", _forbidden)
        else:
            path.rename(tmp_path / "moved")
            path.write_bytes(b"")
        for first in (1, 2):
            store.store(text(2, first=first), contents(text(2, first=first)))
        assert store.drain(HANG_S)
        assert caplog.text.count("takes no blocks") == 1 and store.stats.failures == 2
        if fault == "a file in its place":
            path.unlink()
            (tmp_path / "moved").rename(path)
    assert not list(path.glob("*.tmp"))
    assert (found(store, text(2)), found(store, text(2, first=1))) == (2, 0)
    store.store(text(2, first=1), contents(text(2, first=1)))
    assert store.drain(HANG_S)
    assert found(store, text(2, first=1)) == 2


class _full:
    """A file on a disk without room: it takes some bytes, then no more."""

    def __init__(self, path: str, *_: Any, **__: Any) -> None:
        Path(path).write_bytes(b"some")

    def __enter__(self) -> "_full":
        return self

    def __exit__(self, *_: object) -> None: ...

    def write(self, _: Any) -> int:
        raise OSError(28, "No space left on device")


def _forbidden(*_: Any) -> None:
    raise PermissionError(13, "Permission denied")


def test_a_folder_that_is_deleted_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "kv"
    path.mkdir()
    store = stored(path, text(3))
    for one in path.iterdir():
        one.unlink()
    path.rmdir()
    assert found(store, text(3)) == 0
    store.store(text(3), contents(text(3)))
    assert store.drain(HANG_S)
    assert found(store, text(3)) == 3 and store.stats.failures == 0


def test_files_that_cannot_be_read_are_misses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = stored(tmp_path, text(3))
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(folder_store, "read_into", _forbidden)
        assert found(store, text(3)) == 0
    assert "cannot be read: Permission denied" in caplog.text
    with monkeypatch.context() as patch:
        patch.setattr(folder_store.np, "empty", _no_memory)
        assert found(store, text(3)) == 0
    assert found(store, text(3)) == 3 and store.stats.failures == 2


def _no_memory(*_: Any) -> None:
    raise MemoryError


def test_a_task_that_fails_is_not_the_last(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = FolderStore(str(tmp_path), LIMIT, FORM)
    store.store(text(1), [object()])  # an array that was lost with a failed step
    store.store(text(2), contents(text(2)))
    assert store.drain(HANG_S)
    assert found(store, text(2)) == 2 and "were not written" in caplog.text


def test_another_process_that_holds_the_lock_costs_blocks_not_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import fcntl, os, sys\n"
        "lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n"
        "fcntl.flock(lock, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / ".lock")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None and child.stdout.readline() == "held\n"
    monkeypatch.setattr(folder_module, "LOCK_S", 0.05)
    store = FolderStore(str(tmp_path), LIMIT, FORM)
    store.store(text(2), contents(text(2)))
    assert store.drain(HANG_S)
    assert (found(store, text(2)), store.stats.failures) == (0, 1)
    child.communicate("")
    store.store(text(2), contents(text(2)))
    assert store.drain(HANG_S)
    assert found(store, text(2)) == 2


KILLED = """
import sys, time
from tests.kv_store.test_folder_store import FORM, LIMIT, contents, text
from jax_engine.kv_store.folder_store import FolderStore
store = FolderStore(sys.argv[1], LIMIT, FORM)
for first in range(10**6):
    store.store(text(9, first), contents(text(9, first)))
    if first == 3:
        store.drain(60)
        print("writes", flush=True)
    if first > 3:
        time.sleep(0.001)
"""


def test_a_process_killed_while_it_writes_leaves_whole_files_only(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert child.stdout is not None and child.stdout.readline() == "writes\n"
    time.sleep(0.05)
    child.kill()
    child.wait()
    child.stdout.close()
    store = FolderStore(str(tmp_path), LIMIT, FORM)
    assert [found(store, text(9, first)) for first in range(4)] == [9] * 4
    assert len(store.recent(10**6)) == len(list(tmp_path.glob("*.kv")))
    assert store.stats.failures == 0 and not list(tmp_path.glob("*.tmp"))


def test_its_end_writes_what_is_left_and_ends_its_threads(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    store = FolderStore(str(tmp_path), LIMIT, FORM)
    for first in range(20):
        store.store(text(9, first), contents(text(9, first)))
    store.close()
    store.close()
    until(lambda: not set(threading.enumerate()) - before)  # others may end meanwhile
    assert len(os.listdir(tmp_path)) == 181  # with the lock


def test_never_more_than_the_limit(tmp_path: Path) -> None:
    one = FORM.file_size(text(1)[0])
    store = stored(tmp_path, text(9), limit=4 * one + 3)
    assert found(store, text(9)) == 4 and store.stats.num_bytes == 4 * one
    store.store(text(2, first=1), contents(text(2, first=1)))
    assert store.drain(HANG_S)
    assert (found(store, text(9)), found(store, text(2, first=1))) == (2, 2)
