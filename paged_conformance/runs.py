"""Runs a suite on a target within its seconds, and says what became of each property."""

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from paged_conformance.properties import Capabilities, Property
from paged_conformance.search import Found, search

FIRST_PASS = 0.4  # the share of the seconds in which each property has its turn
LEAST_S = 0.05  # what is left over and shorter than this for each property is not shared again


class Status(StrEnum):
    HELD = "held"
    FELL = "fell"
    KNOWN = "known"  # it fell, and the file of known failures says so
    SKIPPED = "skipped"  # the target lacks what it needs
    ERROR = "error"  # the suite itself failed
    NOT_RUN = "not run"  # the run was interrupted before


@dataclass
class Outcome:
    """What became of one property.

    Attributes:
        why: Why it is skipped or known to fail, or the suite's own traceback.
        unexpected: It held, but is in the file of known failures.
        script: Repeats the failure alone; None if nothing was written.
    """

    prop: Property
    status: Status = Status.NOT_RUN
    why: str = ""
    unexpected: bool = False
    found: Found = field(default_factory=Found)
    script: Path | None = None


@dataclass
class Run:
    """One run of a suite on a target.

    Attributes:
        seconds: How long it took.
        numbers: What the suite measured meanwhile, by name.
        interrupted: Somebody ended it; the outcomes are those until then.
    """

    kind: str
    target: str
    has: Capabilities
    seed: int
    outcomes: list[Outcome]
    seconds: float = 0.0
    numbers: dict[str, float] = field(default_factory=dict)
    interrupted: bool = False

    def those(self, *statuses: Status) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.status in statuses]

    def exit_status(self) -> int:
        """0 if all that ran held, 1 if a property fell, 3 if none ran, 130 if interrupted."""
        if self.those(Status.FELL, Status.ERROR):
            return 1
        if self.interrupted:
            return 130
        return 0 if self.those(Status.HELD, Status.KNOWN) else 3


class Watcher:
    """Is told how a run goes on. This one does nothing."""

    def begins(self, outcome: Outcome) -> None: ...

    def tick(self) -> None: ...

    def ends(self, outcome: Outcome) -> None: ...

    def closes(self) -> None: ...


def run(
    this: Run,
    make: Any,
    words: dict[str, str],
    *,
    seconds: float,
    known: dict[str, str],
    watcher: Watcher,
    on_failure: Callable[[Outcome], None],
) -> None:
    """Searches the properties of a run's outcomes, and sets their statuses.

    Each has its turn within a part of the seconds. The rest is for those that still hold.

    Args:
        make: What the properties' checks are given.
        words: The suite's capabilities, and what each says.
        known: Properties that are known to fail, and why.
        on_failure: Called with the outcome when a property has fallen.
    """
    start = time.monotonic()
    end = start + seconds
    for outcome in this.outcomes:
        skip_if_lacking(outcome, this.has, words)
    open_ones = this.those(Status.NOT_RUN)
    share = FIRST_PASS
    try:
        while open_ones:
            _one_pass(this, open_ones, make, share, end, known, watcher, on_failure)
            open_ones = [o for o in this.those(Status.HELD) if not o.found.exhausted]
            share = 1.0
            if end - time.monotonic() < LEAST_S * len(open_ones):
                break
    except KeyboardInterrupt:
        this.interrupted = True
    finally:
        this.seconds = time.monotonic() - start
        watcher.closes()


def _one_pass(
    this: Run,
    outcomes: Sequence[Outcome],
    make: Any,
    share: float,
    end: float,
    known: dict[str, str],
    watcher: Watcher,
    on_failure: Callable[[Outcome], None],
) -> None:
    """Gives each an equal part of what is left of this share of the seconds."""
    until = time.monotonic() + max(0.0, end - time.monotonic()) * share
    for index, outcome in enumerate(outcomes):
        left = max(0.0, until - time.monotonic())
        watcher.begins(outcome)
        before = outcome.found.num_examples
        try:
            search(
                outcome.prop,
                make,
                this.has,
                seconds=left / (len(outcomes) - index),
                seed=this.seed,
                found=outcome.found,
                tick=watcher.tick,
            )
        except KeyboardInterrupt:
            if outcome.found.failed or outcome.found.num_examples > before:
                judge(outcome, known, on_failure)
            raise
        except Exception:
            outcome.status, outcome.why = Status.ERROR, traceback.format_exc()
        else:
            judge(outcome, known, on_failure)
        watcher.ends(outcome)


def judge(outcome: Outcome, known: dict[str, str], on_failure: Callable[[Outcome], None]) -> None:
    """Sets the status by what was found."""
    found, name = outcome.found, outcome.prop.name
    if found.failed:
        outcome.status = Status.KNOWN if name in known else Status.FELL
        outcome.why, outcome.unexpected = known.get(name, ""), False
        on_failure(outcome)
    elif found.num_lacking == found.num_examples:
        outcome.status = Status.SKIPPED
        outcome.why = f"no example counts: {found.lacks}" if found.lacks else "there is no example"
    else:
        outcome.status, outcome.unexpected = Status.HELD, name in known


def skip_if_lacking(outcome: Outcome, has: Capabilities, words: dict[str, str]) -> None:
    """Sets the status of a property that needs what the target lacks."""
    lacking = [word for word in outcome.prop.needs if word not in has]
    if lacking:
        outcome.status = Status.SKIPPED
        outcome.why = "the target lacks " + "; ".join(
            f"{word} ({words.get(word, '').rstrip('.')})" for word in lacking
        )
