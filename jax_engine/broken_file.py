"""What stands in the place of a model's file after a download or a copy that went wrong.

Readers that cannot read a file ask this for their message: their own error would name a byte of a
page of HTML.
"""

import os
from collections.abc import Iterable
from pathlib import Path

_START = 256  # bytes that are looked at
_KINDS = {
    b"version https://git-lfs": "It is a pointer of git LFS, and not the file itself: run "
    "`git lfs pull` in its directory, or download the file",
    b"<": "It is a page in HTML or XML, such as a login or an error: download the file again",
    b"\xff\xfe": "It is text in UTF-16: save it in UTF-8",
    b"\xfe\xff": "It is text in UTF-16: save it in UTF-8",
    b"PK\x03\x04": "It is a zip archive: unpack it, or download the file that is in it",
    b"\x1f\x8b": "It is compressed with gzip: unpack it",
}
_COPY = "copy what links lead to, too (cp -L, rsync -L), or download it again"


def what_instead(path: Path) -> str | None:
    """A sentence on what a file is, by its first bytes, and what to do; None: nothing is known."""
    if os.path.islink(path) and not path.exists():
        return f"It is a link to {os.readlink(path)}, which is not there: {_COPY}."
    try:
        with path.open("rb") as file:
            start = file.read(_START)
    except OSError:
        return None
    if not start:
        return "It is empty: download it again."
    text = start.lstrip()
    found = (
        what for kind, what in _KINDS.items() if start.startswith(kind) or text.startswith(kind)
    )
    return next((f"{what}." for what in found), None)


def dead_links(files: Iterable[Path]) -> str:
    """A sentence on the first of these that is a link to nothing; "": none is."""
    dead = next((one for one in sorted(files) if one.is_symlink() and not one.exists()), None)
    return (
        ""
        if dead is None
        else f" {dead.name} is a link to {os.readlink(dead)}, which is not there: {_COPY}."
    )
