"""Several clients at once: each a thread that ends with its request's patience."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from paged_conformance.properties import Broken, Lacking


def together(jobs: Sequence[Callable[[], Any]], seconds: float) -> list[Any]:
    """Runs all jobs at the same time; returns what each returned.

    Raises:
        Broken: A job did not end within the seconds, though each of its requests would have.
        Exception: A job's own; Broken before any other, Lacking last.
    """
    results: list[Any] = [None] * len(jobs)
    errors: list[BaseException | None] = [None] * len(jobs)

    def work(place: int) -> None:
        try:
            results[place] = jobs[place]()
        except BaseException as error:
            errors[place] = error

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(len(jobs))]
    for thread in threads:
        thread.start()
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    raised = [error for error in errors if error is not None]
    if raised:
        raise min(raised, key=_order)
    if any(thread.is_alive() for thread in threads):
        raise Broken(f"{len(jobs)} requests at once did not end within {seconds:g} s")
    return results


def _order(error: BaseException) -> int:
    return 0 if isinstance(error, Broken) else 2 if isinstance(error, Lacking) else 1
