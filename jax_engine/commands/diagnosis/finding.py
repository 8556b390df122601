"""A fact, and what to do about it."""

from collections.abc import Callable, Iterator
from typing import NamedTuple


class Finding(NamedTuple):
    """
    Attributes:
        to_do: what the user should do; None: nothing.
    """

    name: str
    value: str
    to_do: str | None = None


def findings_of(part: Callable[[], Iterator[Finding]]) -> list[Finding]:
    """All findings of a part. What it cannot find out is a finding, too."""
    found: list[Finding] = []
    try:
        found.extend(part())
    except Exception as error:
        name = part.__module__.rpartition(".")[2]
        found.append(Finding(name, f"not known ({type(error).__name__}: {error})"))
    return found


def size(num_bytes: int) -> str:
    """Bytes for people."""
    names = ("B", "KiB", "MiB", "GiB", "TiB")
    unit = min(max(num_bytes.bit_length() - 1, 0) // 10, 4)
    return f"{num_bytes / 1024**unit:.{0 if unit < 2 else 1}f} {names[unit]}"
