"""From settings to what the page shows.

>>> found = run({"requests": [{"prompt": "To be or", "max_tokens": 2}]})
>>> len(found["trace"]["moments"]), found["fell"], found["refused"]
(5, None, {})
>>> run({"gpu_blocks": 0})["error"]
'gpu_blocks must be a whole number from 1 to 40, got 0'
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playground.breaks import BREAKS, system_of
from playground.invariants import TITLES, Fell, section
from playground.settings import NUMBERS, SettingError, Settings, scenario_of
from playground.trace import Moment, head, moment, moments
from playground.watched_run import WatchedRun
from playground.words import prompts

EXAMPLES = Path(__file__).with_name("examples.json")
"""What `python -m playground.smallest` has found."""


def run(settings: Settings) -> dict[str, Any]:
    """Runs to the end, or until an invariant falls without which there is no going on.

    Returns:
        `trace`, as `playground.trace` makes it; `fell`: None, or the invariant, its title, its
        section in docs/correctness.md, what is wrong, the step, in which later step it had
        somebody preempted, and `then`: what fell later and ended the run; `refused`: why, by
        request. Or only `error`: which setting is wrong.
    """
    try:
        run_of = watched(settings)
    except SettingError as error:
        return {"error": str(error)}
    found: list[Moment] = []
    falls: list[dict[str, Any]] = []
    for one, fell in seen(run_of):
        found.append(one)
        if fell is not None:
            falls.append(fell)
    first: dict[str, Any] | None = None
    if falls:
        first = falls[0] | {"preempted": run_of.preempted, "then": next(iter(falls[1:]), None)}
    # Nothing that is planned knows of the devices.
    devices = settings.get("devices", NUMBERS["devices"][0])
    trace = head(run_of) | {"devices": devices, "moments": found}
    return {"trace": trace, "fell": first, "refused": run_of.refused}


def watched(settings: Settings) -> WatchedRun:
    """The run that these settings ask for, before its first step. Raises SettingError."""
    system = system_of(_checked(settings.get("breaks", [])))
    return WatchedRun(scenario_of(settings), system)


def seen(run_of: WatchedRun) -> Iterator[tuple[Moment, dict[str, Any] | None]]:
    """Its moments; with one in which an invariant falls, what fell."""
    noted = False
    fell = None
    try:
        for one in moments(run_of):
            if run_of.noted is not None and not noted:
                noted, said = True, _fell(run_of, run_of.noted)
                yield _moment(run_of, said), said
            yield one, None
    except Fell as error:
        fell = error
    except (AssertionError, IndexError, KeyError, RuntimeError, ValueError) as error:
        # A broken system may stumble before an invariant is looked at
        fell = Fell("I7", f"{type(error).__name__}: {error}")
    if fell is not None:
        said = _fell(run_of, fell)
        yield _moment(run_of, said), said


def _fell(watched: WatchedRun, fell: Fell) -> dict[str, Any]:
    name = fell.invariant
    where = {"title": TITLES[name], "section": section(name)}
    return {"invariant": name, "says": fell.says, "step": watched.step, **where}


def _moment(watched: WatchedRun, fell: dict[str, Any]) -> Moment:
    says = f"{fell['says'][0].upper()}{fell['says'][1:]}."
    return moment(watched, watched.step, "fell", says, watched.output)


def _checked(names: Any) -> list[str]:
    if not isinstance(names, list):
        raise SettingError(f"breaks must be a list, got {names!r}")
    for name in names:
        if name not in BREAKS:
            raise SettingError(f"breaks: {name!r} is none of {', '.join(BREAKS)}")
    return names


def faults(_: None = None) -> dict[str, dict[str, Any]]:
    """The faults that can be planted, by name: what each breaks, and the smallest example found."""
    examples = json.loads(EXAMPLES.read_text("utf-8"))
    return {
        name: {"says": one.says, "user": one.user, "example": examples[name]}
        for name, one in BREAKS.items()
    }


def draw(wanted: dict[str, int]) -> list[dict[str, Any]]:
    """So many requests of a seed, for the button "random requests"."""
    steps = (1, 1, 2, 4, 6, 8)
    found = prompts(wanted["seed"], wanted["count"])
    return [
        {"prompt": prompt, "max_tokens": 4 + (wanted["seed"] + 3 * i) % 7, "step": steps[i]}
        for i, prompt in enumerate(found)
    ]
