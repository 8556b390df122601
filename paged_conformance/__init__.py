"""The suite that others run: it finds bugs in engines, schedulers, managers and kernels.

    paged-conformance block-manager my_engine.conformance:blocks

`properties.py` says what a property is, `suites.py` lists the kinds of targets.
"""

from paged_conformance.pipe_server import serve_pipe
from paged_conformance.properties import (
    Broken,
    Capabilities,
    Elsewhere,
    Example,
    Lacking,
    Property,
    Refused,
    demand,
)

__all__ = [
    "Broken",
    "Capabilities",
    "Elsewhere",
    "Example",
    "Lacking",
    "Property",
    "Refused",
    "demand",
    "serve_pipe",
]
