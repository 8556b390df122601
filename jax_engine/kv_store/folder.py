"""A folder of files of which those used longest ago give way: LRU by bytes, over restarts.

A file's modification time is when it was last used. Several processes may share the folder. Who
writes holds a lock (`.lock`), in which the changes are counted: who finds the count as it left it
knows the folder, and others read it anew. Readers need no lock: a file that is gone is a miss.

A text's blocks are used together, the first one last, so that the end of a text gives way before
its beginning, without which it could not be found. The rule is written once more, to be read, in
`reference/block_files.py`.
"""

import errno
import os
import re
import stat
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

# Others' files in the folder are neither counted nor touched.
OURS = re.compile(r"[0-9a-f]{16}-[0-9a-f]{64}\.kv(\.\d+\.tmp)?")
LOCK_S = 5.0  # for which a writer waits for the others
LOCK_TRIES_S = 0.01
_NO_LINKS: dict[str, Any] = (
    {"follow_symlinks": False} if os.utime in os.supports_follow_symlinks else {}
)
type Files = dict[str, tuple[int, Callable[[], list[Any]]]]
"""For each name the size of its file, and what makes the parts that it holds."""


class FolderBusyError(OSError):
    """Another process held the lock for too long."""


class LruFolder:
    """The files of blocks in one folder. One thread at a time uses it.

    Args:
        limit: The most bytes of all files.

    Attributes:
        num_bytes: Bytes of all files, when last looked.
    """

    def __init__(self, path: str, limit: int) -> None:
        self.path, self.limit = path, limit
        self.num_bytes = 0
        self._sizes: OrderedDict[str, int] = OrderedDict()  # the one used longest ago first
        self._times: dict[str, int] = {}
        self._count: int | None = None
        self._now = 0

    def names(self) -> list[str]:
        """The files when last looked, the one used longest ago first."""
        return list(self._sizes)

    def file(self, name: str) -> str:
        """The path of a file."""
        return os.path.join(self.path, name)

    def use(self, names: Sequence[str]) -> list[str]:
        """Notes that these files, of a text's blocks in order, are used; returns those there are.

        Needs no lock.
        """
        found, now = [], self._clock(len(names))
        for place, name in enumerate(names):
            try:
                os.utime(self.file(name), ns=(now - place, now - place), **_NO_LINKS)
            except OSError:
                self._forget(name)
                continue
            found.append(name)
            if name in self._sizes:
                self._times[name] = now - place
        for name in reversed(found):
            if name in self._sizes:
                self._sizes.move_to_end(name)
        return found

    def store(self, names: Sequence[str], files: Files) -> int:
        """Uses a text's blocks, and writes those of `files` that are not there.

        What was used longest ago gives way. A block is not stored if only blocks could give way
        that come before it in its text.

        Args:
            names: The names of the text's blocks, in order, up to the last that is to be stored.
            files: Those of some of them.

        Returns:
            Bytes that were written.

        Raises:
            OSError: The folder cannot be written, or has no room. What was written stays.
        """
        written, before = 0, set[str]()
        with self._locked():
            there = set(self.use(names))
            now = self._now
            for place, name in enumerate(names):
                if name in files and name not in there:
                    size, parts = files[name]
                    if self._make_room(size, before):
                        self._write(name, parts(), now - place)
                        self._add(name, size, now - place)
                        written += size
                before.add(name)
            self._sort()
        return written

    def remove(self, names: Sequence[str]) -> None:
        """Removes files, if they are there."""
        for name in names:
            with suppress(OSError):
                os.unlink(self.file(name))
            self._forget(name)

    def discard(self, path: str) -> None:
        """Removes a wrong file; any thread may. Its bytes count until the folder is read anew."""
        with suppress(OSError):
            os.unlink(path)

    def look(self) -> None:
        """Reads the folder: finds what others have done, and removes what a dead writer left.

        Raises:
            OSError: It cannot be read.
        """
        with self._locked():
            self._read_folder()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        os.makedirs(self.path, exist_ok=True)
        lock = os.open(self.file(".lock"), os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _take(lock)
            count = int.from_bytes(os.pread(lock, 8, 0), "little")
            if count != self._count:
                self._read_folder()
            try:
                yield
            finally:
                self._count = (count + 1) % 2**64
                os.pwrite(lock, self._count.to_bytes(8, "little"), 0)
        finally:
            os.close(lock)

    def _read_folder(self) -> None:
        found: list[tuple[int, str, int]] = []
        with os.scandir(self.path) as entries:
            for entry in entries:
                if OURS.fullmatch(entry.name) is None:
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:  # gone meanwhile
                    continue
                if not stat.S_ISREG(status.st_mode):
                    continue
                if entry.name.endswith(".tmp"):  # its writer holds no lock, so it is dead
                    with suppress(OSError):
                        os.unlink(entry.path)
                    continue
                found.append((status.st_mtime_ns, entry.name, status.st_size))
        found.sort()
        self._sizes = OrderedDict((name, size) for _, name, size in found)
        self._times = {name: used for used, name, _ in found}
        self.num_bytes = sum(self._sizes.values())

    def _make_room(self, size: int, before: set[str]) -> bool:
        """Lets files give way until one of this size fits; False if it does not."""
        if size > self.limit:
            return False
        while self.num_bytes + size > self.limit:
            name = next(iter(self._sizes), None)
            if name is None or name in before:
                return False
            if self._used_by_others(name):
                continue
            with suppress(FileNotFoundError):
                os.unlink(self.file(name))
            self._forget(name)
        return True

    def _used_by_others(self, name: str) -> bool:
        """Whether another process has used it since; then it takes its new place."""
        try:
            used = os.lstat(self.file(name)).st_mtime_ns
        except OSError:
            return False
        if used <= self._times[name]:
            return False
        self._times[name] = used
        self._sort()
        return True

    def _write(self, name: str, parts: list[Any], used: int) -> None:
        """Writes a file under another name first, so that nobody finds half of it.

        It is not flushed to the disk: after a loss of power the checksum tells.
        """
        path = self.file(f"{name}.{os.getpid()}.tmp")
        try:
            with open(path, "wb", buffering=0) as file:
                for part in parts:
                    rest = memoryview(part)
                    while len(rest):
                        rest = rest[file.write(rest) :]
            os.utime(path, ns=(used, used))
            os.replace(path, self.file(name))
        except BaseException:
            with suppress(OSError):
                os.unlink(path)
            raise

    def _add(self, name: str, size: int, used: int) -> None:
        self._forget(name)
        self._sizes[name], self._times[name] = size, used
        self.num_bytes += size

    def _sort(self) -> None:
        """By time; nearly sorted already, which Python's sort makes use of."""
        self._sizes = OrderedDict(
            sorted(self._sizes.items(), key=lambda one: (self._times[one[0]], one[0]))
        )

    def _forget(self, name: str) -> None:
        size = self._sizes.pop(name, None)
        if size is not None:
            del self._times[name]
            self.num_bytes -= size

    def _clock(self, count: int) -> int:
        """Nanoseconds since 1970, such that so many moments before it are new, too."""
        self._now = max(time.time_ns(), self._now + count + 1)
        return self._now


def _take(lock: int) -> None:
    """Takes a lock that ends with its process. A file system without locks has none.

    Raises:
        FolderBusyError: Others hold it for too long.
    """
    if fcntl is None:
        return
    end = time.monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS):
                return
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            if time.monotonic() > end:
                raise FolderBusyError(errno.EBUSY, "another process holds its lock") from None
            time.sleep(LOCK_TRIES_S)
        else:
            return
