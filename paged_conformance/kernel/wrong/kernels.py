"""All of the wrong kernels, and which property of the suite is there for each."""

import inspect
from typing import cast

from paged_conformance.kernel.wrong import batching, reading, scoring
from paged_conformance.kernel.wrong.plain import Plain


def wrong_kernels() -> list[type[Plain]]:
    """The wrong kernels, in the order in which they stand in the files."""
    found: list[type[Plain]] = []
    for module in (reading, scoring, batching):
        members = inspect.getmembers(module, inspect.isclass)
        mine = [one for _, one in members if one.__module__ == module.__name__]
        found += sorted(
            cast(list[type[Plain]], mine), key=lambda kind: inspect.getsourcelines(kind)[1]
        )
    return found


def table() -> str:
    """Markdown: each mistake, and the property that must notice it."""
    lines = ["| a kernel in which | is noticed by |", "|---|---|"]
    for kernel in wrong_kernels():
        mistake = str(kernel.__doc__).rstrip(".").replace("|", "\\|")
        lines.append(f"| {mistake[0].lower()}{mistake[1:]} | `{kernel.caught_by}` |")
    return "\n".join(lines)
