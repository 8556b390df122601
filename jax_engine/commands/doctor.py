"""Says what is here, what would run on it, and what to do.

    jax-engine doctor
    jax-engine doctor --json
    jax-engine doctor --model MODEL

It ends with status 0 if there is nothing to do, else with 1.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from jax_engine.commands.diagnosis import (
    Finding,
    device,
    findings_of,
    machine,
    network,
    several,
    software,
    storage,
)

USAGE = "[--json] [--model MODEL]"
HELP = "say what is here, what would run, and what to do"
SEVERAL = "several devices"
PARTS: dict[str, Callable[[], Iterator[Finding]]] = {
    "software": software,
    "machine": machine,
    "what runs where": device,
    SEVERAL: several,
    "files": storage,
    "network": network,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    parser.add_argument("--json", action="store_true", help="write JSON, for programs")
    parser.add_argument(
        "--model", help="say how many devices can share this model, and what each would hold"
    )


def run(args: argparse.Namespace) -> int:
    """Examines all parts at once; returns the exit status."""
    parts = PARTS if args.model is None else PARTS | {SEVERAL: partial(several, args.model)}
    with ThreadPoolExecutor() as pool:
        found = dict(zip(parts, pool.map(findings_of, parts, parts.values()), strict=True))
    to_do = [one.to_do for part in found.values() for one in part if one.to_do]
    print(_as_json(found, to_do) if args.json else _screen(found, to_do))
    return int(bool(to_do))


def _screen(found: dict[str, list[Finding]], to_do: list[str]) -> str:
    lines = []
    for title, part in found.items():
        lines.append(f"{title}:")
        lines += [f"  {one.name:18}{one.value}" for one in part]
    if to_do:
        return "\n".join([*lines, "to do:", *(f"  - {one}" for one in to_do)])
    return "\n".join([*lines, "nothing to do"])


def _as_json(found: dict[str, list[Finding]], to_do: list[str]) -> str:
    parts = {title: {one.name: one.value for one in part} for title, part in found.items()}
    return json.dumps(parts | {"to_do": to_do}, indent=2)
