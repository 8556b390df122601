"""Lines about long work (loading, compiling, preempting) on the user's screen.

Shown unless the program has set up logging itself; `JAX_ENGINE_LOG_LEVEL` (say WARNING) quietens
them.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm

LONG_S = 1.0  # what takes less is not worth a line


class _AboveProgressBars(logging.Handler):
    """Writes lines without tearing a progress bar that is on the screen."""

    def emit(self, record: logging.LogRecord) -> None:
        tqdm.write(self.format(record), file=sys.stderr)


def show_progress_lines() -> None:
    """Gives the packages' loggers a handler, if nobody else has given them or the root one."""
    for package in ("jax_engine", "pallas_kernels", "cpu_kernels"):
        logger = logging.getLogger(package)
        if logger.hasHandlers():
            continue
        handler = _AboveProgressBars()
        handler.setFormatter(logging.Formatter("jax-engine: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(os.environ.get("JAX_ENGINE_LOG_LEVEL", "INFO").upper())


@contextmanager
def compiling(logger: logging.Logger, what: str) -> Iterator[None]:
    """Lines about the compilation inside, none if it takes less than a second.

    The first one comes when that second is over, so that nobody waits without knowing for what; a
    step that is only loaded from the cache says nothing.
    """
    started = time.perf_counter()
    said = threading.Event()

    def say() -> None:
        logger.info("compiling %s ...", what)
        said.set()

    timer = threading.Timer(LONG_S, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
    if said.is_set():
        logger.info("compiled %s in %.1f s", what, time.perf_counter() - started)
