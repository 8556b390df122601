"""How much memory this process may use, and one typed error for all ways of running out of it."""

import ctypes
import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jax_engine.errors import OutOfMemoryError

CGROUPS = Path("/sys/fs/cgroup")
_CGROUP_FILES = ("memory.max", "memory/memory.limit_in_bytes")  # of version 2, of version 1


def ram_bytes() -> int:
    """Physical memory, or the limit of the container or of `ulimit -v` if that is lower."""
    return min(_limits().values())


def gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"


def check_fits(what: str, num_bytes: int) -> None:
    """Raises OutOfMemoryError if an allocation of this size cannot succeed."""
    limits = _limits()
    limits["RAM"] += _swap_bytes()
    if "ulimit -v" in limits:
        limits["ulimit -v"] -= _address_space()
    if num_bytes > min(limits.values()):
        raise OutOfMemoryError(_message(what, num_bytes))


@contextmanager
def allocating(what: str, num_bytes: int | None = None) -> Iterator[None]:
    """Raises any error inside that says memory ran out as an OutOfMemoryError with numbers."""
    try:
        yield
    except OutOfMemoryError:
        raise
    except Exception as error:
        if not _ran_out(error):
            raise
        raise OutOfMemoryError(_message(what, num_bytes)) from error


def give_back() -> None:
    """Returns freed memory to the system: glibc would keep what a compilation has used."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)


def _ran_out(error: Exception) -> bool:
    """NumPy raises MemoryError, mmap OSError, and XLA an error of its own with these words."""
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return "RESOURCE_EXHAUSTED" in str(error) or "Out of memory" in str(error)


def _message(what: str, num_bytes: int | None) -> str:
    size = "" if num_bytes is None else f"{gib(num_bytes)} for "
    limits = ", ".join(f"{name} {gib(limit)}" for name, limit in _limits().items())
    return (
        f"No memory: {size}{what} cannot be had. There is: {limits}; this process has taken "
        f"{gib(_address_space())} of addresses."
    )


def _limits() -> dict[str, int]:
    limits = {"RAM": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")}
    address_limit, cgroup = _address_limit(), _cgroup_limit()
    if cgroup is not None and cgroup < limits["RAM"]:
        limits["the container's limit"] = cgroup
    if address_limit is not None:
        limits["ulimit -v"] = address_limit
    return limits


def _address_limit() -> int | None:
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def _cgroup_limit() -> int | None:
    """The lowest limit of this process's control groups, in bytes; None without one."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    groups = {Path("/")}
    for line in lines:
        own = Path(line.rpartition(":")[2])
        groups |= {own, *own.parents}
    found = []
    for group in groups:
        for name in _CGROUP_FILES:
            folder, _, file = name.rpartition("/")
            try:
                found.append(int((CGROUPS / folder / str(group).lstrip("/") / file).read_text()))
            except (OSError, ValueError):  # no such file, or "max"
                continue
    return min(found, default=None)


def _swap_bytes() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("SwapTotal:"))


def _address_space() -> int:
    """Size of this process's address space in bytes; 0 if unknown."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
