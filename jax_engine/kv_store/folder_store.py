"""The store of an engine: its blocks in a folder, read and written by two threads.

No step waits for a file that is written, and while others run, none for one that is read. What
cannot be read is computed; what cannot be written is left out; who reads the log is told once.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.util import Finalize
from os.path import lexists
from queue import SimpleQueue
from typing import Any

import numpy as np

from jax_engine.core.block_store import Contents
from jax_engine.core.prefix_cache import HashFunction, Node, salt_parts
from jax_engine.kv_store.block_file import (
    ROOT,
    BadFileError,
    BlockForm,
    Described,
    describe,
    name_of,
    parts_of,
    read_into,
)
from jax_engine.kv_store.folder import LruFolder

logger = logging.getLogger("jax_engine")
BLOCKS_AT_ONCE = 8  # in one array, as the cache takes them
MAX_READ_BYTES = 2 << 30  # of one prompt; the rest of a longer one is computed
MAX_WAITING_BYTES = 1 << 30  # that wait to be written; further blocks are left out
READ_S = 30.0  # after which a folder that does not answer is asked no more
CLOSE_S = 10.0  # for which an engine's end waits for what is to be written


@dataclass(slots=True)
class StoreStats:
    """Counters since the engine was built.

    Attributes:
        blocks_loaded, bytes_loaded: Blocks that were read, and their bytes.
        blocks_stored, bytes_stored: Blocks handed over to be written, and bytes of written files.
        stores_skipped: Blocks that were not written, since too much waits for the folder.
        failures: Files that could not be read or written, and wrong ones.
        num_bytes: Bytes of all files of the folder, when it was last written.
    """

    blocks_loaded: int = 0
    bytes_loaded: int = 0
    blocks_stored: int = 0
    bytes_stored: int = 0
    stores_skipped: int = 0
    failures: int = 0
    num_bytes: int = 0


class FolderStore:
    """A `BlockStore` of the blocks of one form. Its threads end with it.

    Args:
        path: The folder, which exists.
        limit: The most bytes of all its files.

    Attributes:
        stats: Counters so far.
    """

    def __init__(self, path: str, limit: int, form: BlockForm) -> None:
        self.stats, self._form = StoreStats(), form
        self._files = _Files(LruFolder(path, limit), form, self.stats)
        self._reads: SimpleQueue[_Read | None] = SimpleQueue()
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._waiting = _Waiting()
        self._read: _Read | None = None
        self._is_off = False
        reader = threading.Thread(
            target=_run_reads, args=(self._files, self._reads), name="KV files read", daemon=True
        )
        writer = threading.Thread(
            target=_run_tasks, args=(self._tasks,), name="KV files written", daemon=True
        )
        # Unlike weakref.finalize it also ends the store of a process of `multiprocessing`.
        ended = (self._reads, self._tasks, writer)
        self._end = Finalize(self, _end, args=ended, exitpriority=0)
        reader.start()
        writer.start()

    def find(self, nodes: Sequence[Node], *, waits: bool) -> Contents | None:
        """As `BlockStore` says. It waits for `READ_S` at most, and then asks the folder no more."""
        most = MAX_READ_BYTES // self._form.num_bytes
        if not nodes or self._is_off or not most:
            return []
        wanted = list(nodes[:most])
        key = name_of(wanted[0]), name_of(wanted[-1])
        read = self._read
        if read is None or read.key != key:
            self.forget_read()
            if not lexists(self._files.path(wanted[0])):  # as for most prompts
                return []
            read = self._read = _Read(key, wanted)
            self._reads.put(read)
        if not read.done.is_set():
            if not waits:
                return None
            if not read.done.wait(READ_S):
                self.forget_read()
                self._is_off = True
                logger.warning(
                    "kv_cache_dir %s has not answered for %g s: its blocks are computed now",
                    self._files.folder.path, READ_S,
                )  # fmt: skip
                return []
        return read.contents

    def forget_read(self) -> None:
        """Forgets what `find` has read."""
        if self._read is not None:
            self._read.is_wanted = False
            self._read = None

    def use(self, nodes: Sequence[Node]) -> None:
        """As `BlockStore` says."""
        self.forget_read()
        if nodes:
            names = [self._form.file_name(node) for node in nodes]
            self._tasks.put(lambda: self._files.use(names))

    def store(self, nodes: Sequence[Node], parts: Sequence[Any]) -> None:
        """Writes blocks, later.

        Args:
            parts: Arrays of the contents of `BLOCKS_AT_ONCE` blocks each, which a thread may read
                later; the last one may have more than there are nodes.
        """
        num_bytes = len(nodes) * self._form.num_bytes
        if not self._waiting.takes(num_bytes):
            self.stats.stores_skipped += len(nodes)
            return
        files, waiting = self._files, self._waiting

        def write() -> None:
            try:
                files.store(nodes, parts)
            finally:
                waiting.gives(num_bytes)

        self.stats.blocks_stored += len(nodes)
        self._tasks.put(write)

    def recent(self, most: int, hash_fn: HashFunction = hash) -> list[tuple[Node, int]]:
        """The blocks used last whose texts are there from their beginning.

        Returns:
            Each with its place in its text, at most so many; the one used last first.
        """
        return self._files.recent(most, hash_fn)

    def read(self, nodes: Sequence[Node]) -> Contents:
        """The contents of the leading ones of these blocks, now."""
        return self._files.read(_Read((b"", b""), list(nodes)))

    def remove_all(self) -> None:
        """Removes the files of this form, after those that are being written were."""
        self.forget_read()
        self._tasks.put(self._files.remove_all)

    def drain(self, timeout: float) -> bool:
        """Waits until all that was to be written is; returns whether it is."""
        done = threading.Event()
        self._tasks.put(done.set)
        return done.wait(timeout)

    def close(self) -> None:
        """Writes what is left, for `CLOSE_S` at most."""
        self._end()


class _Waiting:
    """Bytes that wait to be written."""

    def __init__(self) -> None:
        self._lock, self._bytes = threading.Lock(), 0

    def takes(self, num_bytes: int) -> bool:
        with self._lock:
            if self._bytes and self._bytes + num_bytes > MAX_WAITING_BYTES:
                return False
            self._bytes += num_bytes
            return True

    def gives(self, num_bytes: int) -> None:
        with self._lock:
            self._bytes -= num_bytes


class _Read:
    """What is read for one prompt.

    Attributes:
        is_wanted: False once nobody asks for it any more.
    """

    __slots__ = ("contents", "done", "is_wanted", "key", "nodes")

    def __init__(self, key: tuple[bytes, bytes], nodes: list[Node]) -> None:
        self.key, self.nodes = key, nodes
        self.contents: Contents = []
        self.done = threading.Event()
        self.is_wanted = True


class _Files:
    """What the two threads do, each its own part of it."""

    def __init__(self, folder: LruFolder, form: BlockForm, stats: StoreStats) -> None:
        self.folder, self._form, self._stats = folder, form, stats
        self._told: set[str] = set()

    def path(self, node: Node) -> str:
        return self.folder.file(self._form.file_name(node))

    def read(self, read: _Read) -> Contents:
        """Reads blocks up to the first that cannot be had."""
        nodes, contents = read.nodes, list[Any]()
        for first in range(0, len(nodes), BLOCKS_AT_ONCE):
            group = nodes[first : first + BLOCKS_AT_ONCE]
            out = np.empty((len(group), self._form.num_bytes), np.uint8)
            count = 0
            while count < len(group) and read.is_wanted and self._has(group[count], out[count]):
                count += 1
            if count:
                contents.append(out[:count])
                self._stats.blocks_loaded += count
                self._stats.bytes_loaded += count * self._form.num_bytes
            if count < len(group):
                break
        return contents

    def _has(self, node: Node, out: np.ndarray) -> bool:
        path = self.path(node)
        try:
            read_into(path, self._form, node, out)
        except FileNotFoundError:
            return False
        except BadFileError as error:
            self.fails(f"{path} is computed anew: {error}", "wrong")
            self.folder.discard(path)
            return False
        except OSError as error:
            self.fails(f"{path} cannot be read: {error.strerror}", f"read {error.errno}")
            return False
        return True

    def use(self, names: list[str]) -> None:
        self.folder.use(names)

    def store(self, nodes: Sequence[Node], parts: Sequence[Any]) -> None:
        """Writes blocks, each run of children and parents as one text."""
        rows = [row for part in parts for row in _bytes_of(part)][: len(nodes)]
        first = 0
        for index in range(1, len(nodes) + 1):
            if index < len(nodes) and nodes[index].parent is nodes[index - 1]:
                continue
            run = dict(zip(nodes[first:index], rows[first:index], strict=True))
            first = index
            try:
                self._stats.bytes_stored += self._store_text(run)
            except OSError as error:
                problem = f"{self.folder.path} takes no blocks: {error.strerror or error}"
                self.fails(problem, f"write {error.errno}")
        self._stats.num_bytes = self.folder.num_bytes

    def _store_text(self, run: dict[Node, np.ndarray]) -> int:
        form, text = self._form, list(run)[::-1]
        while text[-1].parent is not None:
            text.append(text[-1].parent)
        text.reverse()
        files = {
            form.file_name(node): (form.file_size(node), _later(form, node, row))
            for node, row in run.items()
        }
        return self.folder.store([form.file_name(node) for node in text], files)

    def recent(self, most: int, hash_fn: HashFunction) -> list[tuple[Node, int]]:
        """As `FolderStore.recent`."""
        try:
            self.folder.look()
        except OSError as error:
            self.fails(f"{self.folder.path} cannot be read: {error.strerror}", "look")
            return []
        self._stats.num_bytes = self.folder.num_bytes
        names = [one for one in reversed(self.folder.names()) if one.startswith(self._form.prefix)]
        said: dict[bytes, Described] = {}
        for name in names[:most]:
            with suppress(OSError, BadFileError):
                one = describe(self.folder.file(name), self._form)
                said[one.name] = one
        known: dict[bytes, tuple[Node, int] | None] = {}
        found = [_node_of(one, said, known, hash_fn) for one in said]
        return [one for one in found if one is not None]

    def remove_all(self) -> None:
        with suppress(OSError):
            self.folder.look()
            names = self.folder.names()
            self.folder.remove([one for one in names if one.startswith(self._form.prefix)])

    def fails(self, problem: str, kind: str) -> None:
        """Counts a failure, and tells the first of its kind."""
        self._stats.failures += 1
        if kind not in self._told:
            self._told.add(kind)
            logger.warning("kv_cache_dir: %s. Others like it are counted, and not told.", problem)


def _node_of(
    name: bytes,
    said: dict[bytes, Described],
    known: dict[bytes, tuple[Node, int] | None],
    hash_fn: HashFunction,
) -> tuple[Node, int] | None:
    """The node of a name, and its place; None without all those before it."""
    chain: list[Described] = []
    while name != ROOT and name not in known and name in said and said[name] not in chain[-1:]:
        chain.append(said[name])
        known[name] = None  # so that a circle ends
        name = said[name].parent
    parent = known.get(name)
    if name != ROOT and parent is None:
        return None
    for one in reversed(chain):
        above = None if parent is None else parent[0]
        node = Node(above, one.tokens, one.salt, hash_fn)
        if name_of(node) != one.name or not (above is None or _is_one_prompt(above, node)):
            return None
        parent = known[one.name] = (node, 0 if parent is None else parent[1] + 1)
    return parent


def _is_one_prompt(above: Node, node: Node) -> bool:
    """Whether one request may have both: blocks of embeddings have digests of their own."""
    before, behind = salt_parts(above.salt), salt_parts(node.salt)
    return before[:2] == behind[:2] and (before[2] is None) == (behind[2] is None)


def _later(form: BlockForm, node: Node, row: np.ndarray) -> Callable[[], list[Any]]:
    return lambda: parts_of(form, node, row)


def _bytes_of(part: Any) -> np.ndarray:
    """[blocks, bytes], uint8. Waits until the device has computed it."""
    array = np.ascontiguousarray(part)
    return array.reshape(len(array), -1).view(np.uint8)


def _run_reads(files: _Files, reads: "SimpleQueue[_Read | None]") -> None:
    while (read := reads.get()) is not None:
        try:
            if read.is_wanted:
                read.contents = files.read(read)
        except Exception as error:  # MemoryError, for one: the blocks are computed
            files.fails(f"blocks cannot be read: {error!r}", "reader")
        read.done.set()


def _run_tasks(tasks: "SimpleQueue[Callable[[], None] | None]") -> None:
    while (task := tasks.get()) is not None:
        try:
            task()
        except Exception:  # the next may go
            logger.exception("kv_cache_dir: blocks were not written")
        task = None  # else its arrays stay until the next


def _end(
    reads: "SimpleQueue[_Read | None]",
    tasks: "SimpleQueue[Callable[[], None] | None]",
    writer: threading.Thread,
) -> None:
    reads.put(None)
    tasks.put(None)
    if writer is not threading.current_thread():
        writer.join(CLOSE_S)
