"""Logs lines about long work (loading, compiling, preempting) to the user's screen.

They are shown unless the program has set up logging itself. Set `JAX_ENGINE_LOG_LEVEL` (such as
WARNING) to see fewer, and `JAX_ENGINE_LOG_FORMAT` to json to have a JSON object a line.
"""

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from tqdm import tqdm

FORMAT_VARIABLE = "JAX_ENGINE_LOG_FORMAT"
LONG_S = 1.0  # shorter work is not logged
_running: list[str] = []  # what is compiled now


class _AboveProgressBars(logging.Handler):
    """Writes lines without tearing a progress bar that is on the screen."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            tqdm.write(self.format(record), file=sys.stderr)
        except Exception:  # nobody reads it any more, which must not end what is logged
            self.handleError(record)


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON; with `request_id` if it is about a request."""

    def format(self, record: logging.LogRecord) -> str:
        seen = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
        }
        if hasattr(record, "request_id"):
            seen["request_id"] = record.request_id
        if record.exc_info:
            seen["exception"] = self.formatException(record.exc_info)
        return json.dumps(seen)


def _formatter() -> logging.Formatter:
    if os.environ.get(FORMAT_VARIABLE, "text") == "json":
        return JsonFormatter()
    return logging.Formatter("jax-engine: %(message)s")


def show_progress_lines(*more: str) -> None:
    """Adds a handler to each of the packages' loggers, unless it or the root logger has one.

    Args:
        more: names of loggers of other packages.
    """
    for package in ("jax_engine", "pallas_kernels", "cpu_kernels", *more):
        logger = logging.getLogger(package)
        if logger.hasHandlers():
            continue
        handler = _AboveProgressBars()
        handler.setFormatter(_formatter())
        logger.addHandler(handler)
        logger.setLevel(os.environ.get("JAX_ENGINE_LOG_LEVEL", "INFO").upper())


def is_compiling() -> bool:
    """Whether any thread is inside of `compiling`."""
    return bool(_running)


@contextmanager
def compiling(logger: logging.Logger, what: str) -> Iterator[None]:
    """Logs the compilation inside, if it takes more than a second.

    The first line comes after that second, so that users know what they wait for. A step that is
    only loaded from the cache is usually faster, and logs nothing.
    """
    started = time.perf_counter()
    logged = threading.Event()

    def log_start() -> None:
        logger.info("compiling %s ...", what)
        logged.set()

    timer = threading.Timer(LONG_S, log_start)
    timer.daemon = True
    timer.start()
    _running.append(what)
    try:
        yield
    finally:
        _running.remove(what)
        timer.cancel()
        timer.join()
    if logged.is_set():
        logger.info("compiled %s in %.1f s", what, time.perf_counter() - started)
