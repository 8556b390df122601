"""Lines about long work (loading, compiling, preempting) on the user's screen.

Shown unless the program has set up logging itself; `JAX_ENGINE_LOG_LEVEL` (say WARNING) quietens
them.
"""

import logging
import os
import sys

from tqdm import tqdm


class _AboveProgressBars(logging.Handler):
    """Writes lines without tearing a progress bar that is on the screen."""

    def emit(self, record: logging.LogRecord) -> None:
        tqdm.write(self.format(record), file=sys.stderr)


def show_progress_lines() -> None:
    """Gives the packages' loggers a handler, if nobody else has given them or the root one."""
    for package in ("jax_engine", "pallas_kernels"):
        logger = logging.getLogger(package)
        if logger.hasHandlers():
            continue
        handler = _AboveProgressBars()
        handler.setFormatter(logging.Formatter("jax-engine: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(os.environ.get("JAX_ENGINE_LOG_LEVEL", "INFO").upper())
