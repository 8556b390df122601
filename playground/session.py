"""From settings to what the page shows.

>>> found = run({"requests": [{"prompt": "To be or", "max_tokens": 2}]})
>>> len(found["trace"]["moments"]), found["fell"], found["refused"]
(5, None, {})
>>> run({"gpu_blocks": 0})["error"]
'gpu_blocks must be a whole number from 1 to 40, got 0'
"""

import json
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
        system = system_of(_checked(settings.get("breaks", [])))
        watched = WatchedRun(scenario_of(settings), system)
    except SettingError as error:
        return {"error": str(error)}
    found: list[Moment] = []
    fell: dict[str, Any] | None = None
    then: dict[str, Any] | None = None
    try:
        for one in moments(watched):
            if watched.noted is not None and fell is None:
                fell = _fell(watched, watched.noted)
                found.append(_moment(watched, fell))
            found.append(one)
    except Fell as error:
        then = _fell(watched, error)
    except (AssertionError, IndexError, KeyError, RuntimeError, ValueError) as error:
        # A broken system may stumble before an invariant is looked at
        then = _fell(watched, Fell("I7", f"{type(error).__name__}: {error}"))
    if then is not None:
        found.append(_moment(watched, then))
        fell, then = (then, None) if fell is None else (fell, then)
    if fell is not None:
        fell |= {"preempted": watched.preempted, "then": then}
    # Nothing that is planned knows of the devices.
    devices = settings.get("devices", NUMBERS["devices"][0])
    trace = head(watched) | {"devices": devices, "moments": found}
    return {"trace": trace, "fell": fell, "refused": watched.refused}


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
