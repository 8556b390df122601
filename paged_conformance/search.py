"""Looks for an example on which a property fails, within its seconds; makes it smaller."""

import json
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis.errors import Flaky, Unsatisfiable
from hypothesis.statistics import collector
from hypothesis.strategies import SearchStrategy

from paged_conformance.properties import (
    Broken,
    Capabilities,
    Elsewhere,
    Example,
    Lacking,
    Property,
)

ROUND = 200  # examples that one seed draws; then the next seed goes on
SHRINK_SECONDS = (5.0, 30.0)  # at least and at most, for what its own seconds allow
EXAMPLE_SECONDS = 30.0


class Hung(Exception):
    """An example took longer than its seconds."""


class Exited(Exception):
    """The target tried to end the process (SystemExit)."""


class _Enough(BaseException):
    """The time is over. Hypothesis passes it on, since it is no Exception."""


@dataclass
class Found:
    """What a search has found. A search that goes on adds to it.

    Attributes:
        num_examples: How many were tried before the first that failed.
        num_lacking: How many of them do not count: they asked for what the target lacks, or
            another property ended them.
        lacks: Why the last of these did not.
        num_rounds: How many seeds have drawn examples.
        seconds: How long it was searched, with shrinking.
        example: The smallest that fails; None if none does.
        says: What was wrong with it.
        trace: The traceback, where the target raised; None where the property was broken.
        exhausted: There are no other examples.
        flaky: The smallest example failed once and held when it was repeated.
    """

    num_examples: int = 0
    num_lacking: int = 0
    lacks: str = ""
    num_rounds: int = 0
    seconds: float = 0.0
    failed: bool = False
    example: Example = None
    says: str = ""
    trace: str | None = None
    exhausted: bool = False
    flaky: bool = False


def search(
    prop: Property,
    make: Any,
    has: Capabilities,
    *,
    seconds: float,
    seed: int,
    found: Found | None = None,
    tick: Callable[[], None] = lambda: None,
) -> Found:
    """Tries examples until one fails or the seconds are over; one at least.

    Args:
        make: What the property's check is given: it makes targets.
        seed: The same seed draws the same examples.
        found: What an earlier search of this property found, which goes on with other examples.
        tick: Called before each example.
    """
    found = Found() if found is None else found
    start = time.monotonic()
    end = start + seconds
    in_round = 0
    has_ended = False  # the target, by the example that failed

    def test(example: Example) -> None:
        nonlocal end, in_round, has_ended
        if time.monotonic() > end and in_round > 0:
            raise _Enough
        in_round += 1
        tick()
        found.num_examples += not found.failed
        try:
            attempt(prop, make, example)
        except Lacking as lacking:
            if not found.failed:
                note_lacking(found, lacking)
            if not isinstance(lacking, Elsewhere):
                has_ended |= found.failed
                hypothesis.reject()
        except Exception as error:
            if not found.failed:
                least, most = SHRINK_SECONDS
                now = time.monotonic()
                end = now + min(most, max(least, end - now))
            note(found, example, error)
            raise

    def ended(statistics: Mapping[str, Any]) -> None:
        found.exhausted |= statistics.get("stopped-because") == "nothing left to do"

    strategy = prop.examples(has)
    try:
        while not (found.failed or found.exhausted):
            in_round = 0
            shrinks = prop.smaller is None
            draws = _round(strategy, test, f"{seed} {found.num_rounds} {prop.name}", shrinks)
            found.num_rounds += 1
            try:
                with collector.with_value(ended):  # type: ignore[arg-type]
                    draws()
            except Unsatisfiable:
                found.exhausted = True  # all that there are ask for what the target lacks
            except Flaky:
                found.flaky = not has_ended
            if time.monotonic() > end:
                break
    except _Enough:
        pass
    except Exception:
        if not found.failed:  # the strategy's own
            raise
        make_smaller(prop, make, found, end)
    finally:
        found.seconds += time.monotonic() - start
    return found


def _round(
    strategy: SearchStrategy[Example], test: Callable[[Example], None], seed: str, shrinks: bool
) -> Callable[[], None]:
    limits = hypothesis.settings(
        max_examples=ROUND,
        deadline=None,
        database=None,
        derandomize=False,
        report_multiple_bugs=False,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, *([Phase.shrink] if shrinks else [])],
    )
    return hypothesis.seed(seed)(limits(hypothesis.given(strategy)(test)))


def make_smaller(prop: Property, make: Any, found: Found, end: float) -> None:
    """Takes what still fails of the examples that the property calls smaller, until the end."""
    tried: set[str] = set()
    goes_on = prop.smaller is not None
    while goes_on:
        goes_on = False
        for example in prop.smaller(found.example) if prop.smaller else ():
            if time.monotonic() > end:
                return
            if json.dumps(example) in tried:
                continue
            tried.add(json.dumps(example))
            try:
                attempt(prop, make, example)
            except Lacking:
                continue
            except Exception as error:
                note(found, example, error)
                goes_on = True
                break


def attempt(prop: Property, make: Any, example: Example) -> None:
    """Checks one example, of which the check gets a copy, within its seconds.

    Raises:
        Hung: It took longer.
        Exited: The target called `sys.exit`.
        Exception: As the check.
    """
    try:
        with alarm(example_seconds(make)):
            prop.check(make, json.loads(json.dumps(example)))
    except SystemExit as ended:
        behind = Exited(f"it called sys.exit({ended.code!r})")
        raise behind.with_traceback(ended.__traceback__) from None


def note_lacking(found: Found, lacking: Lacking) -> None:
    """Leaves an example out of the count, and keeps why."""
    found.num_lacking, found.lacks = found.num_lacking + 1, f"{lacking.because}: {lacking}"


def note(found: Found, example: Example, error: Exception) -> None:
    """Keeps the smallest example: the one whose JSON is shortest."""
    text = json.dumps(example)
    if found.failed and len(text) > len(json.dumps(found.example)):
        return
    found.failed, found.example = True, json.loads(text)
    if isinstance(error, Broken):
        found.says, found.trace = str(error), None
    else:
        found.says = f"{type(error).__name__}: {error}"
        behind = error.__traceback__
        while behind is not None and behind.tb_frame.f_code.co_filename == __file__:
            behind = behind.tb_next  # without our own frames
        found.trace = "".join(traceback.format_exception(type(error), error, behind))


def example_seconds(make: Any) -> float:
    """How long an example may take: the target's `example_seconds`, where it has them."""
    return float(getattr(make, "example_seconds", EXAMPLE_SECONDS))


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Raises Hung when the seconds are over: in a main thread, where there are such signals."""
    here = threading.current_thread() is threading.main_thread()
    if not (here and hasattr(signal, "SIGALRM")):
        yield
        return

    def ring(*_: Any) -> None:
        raise Hung(f"it did not end within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
