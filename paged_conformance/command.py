"""The command: `paged-conformance KIND TARGET`.

Exit status: 0 if all that ran held, 1 if a property fell, 2 if the call is wrong or the target
cannot be loaded, 3 if nothing ran, 130 if it was interrupted and nothing had fallen.
"""

import argparse
import fnmatch
import math
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from paged_conformance import replay, report
from paged_conformance.errors import TargetError
from paged_conformance.progress import watcher_for
from paged_conformance.properties import Property
from paged_conformance.runs import Outcome, Run, run
from paged_conformance.suites import SUITES, NoSuite, Suite, suite_of
from paged_conformance.targets import Target, capabilities, near, opened


class BadUsage(Exception):
    """An argument has no meaning; the message names it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    options = parser().parse_args(arguments)
    try:
        if options.list:
            return _list(options)
        if options.replay is not None:
            return replay.tell(_failure(options))
        return _run(options)
    except (BadUsage, NoSuite, TargetError, replay.BadScript) as error:
        print(f"paged-conformance: {error}", file=sys.stderr)
        return 2


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    made = argparse.ArgumentParser(
        prog="paged-conformance",
        description="Looks for examples on which a target breaks the properties of its kind.",
        epilog="Exit status: 0 all that ran held, 1 a property fell, 2 wrong usage or a target "
        "that cannot be loaded, 3 nothing ran, 130 interrupted.",
    )
    add = made.add_argument
    add("kind", nargs="?", metavar="KIND", help=f"{', '.join(SUITES)}, or a module of your own")
    add("target", nargs="?", metavar="TARGET", help="module:name, or the URL of a server")
    add("--command", metavar="COMMAND", help="start this target, which speaks JSON lines")
    add("--option", action="append", default=[], metavar="NAME=VALUE", help="for a server")
    add("--seconds", type=_seconds, default=60.0, help="for the whole run (60)")
    add("--seed", type=int, help="draws the same examples again (random)")
    add("--only", action="append", default=[], metavar="PATTERN", help="these properties")
    add("--list", action="store_true", help="the kinds, or the properties of a kind")
    add("--known", type=Path, metavar="FILE", help="known failures: lines `property  # why`")
    add("--format", choices=report.FORMATS, default="text", help="what is printed (text)")
    add(
        "--report",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help=f"write the report too, by its ending: {', '.join(report.ENDINGS)}",
    )
    add("--replay", type=Path, metavar="FILE", help="repeat the failure of a script alone")
    add(
        "--failures",
        type=Path,
        default=Path("conformance-failures"),
        metavar="DIR",
        help="where a script is written for each failure (conformance-failures)",
    )
    return made


def _seconds(text: str) -> float:
    seconds = float(text)
    if not (math.isfinite(seconds) and seconds > 0):
        raise argparse.ArgumentTypeError(f"{text} is no positive number of seconds")
    return seconds


def _run(options: argparse.Namespace) -> int:
    if options.kind is None:
        raise BadUsage(f"KIND is missing: {', '.join(SUITES)}.")
    for path in options.report:
        _format_of(path)
    suite, target = suite_of(options.kind), _target(options)
    chosen = selected(suite.properties(), options.only)
    known = {} if options.known is None else read_known(options.known, suite)
    seed = random.randrange(2**32) if options.seed is None else options.seed
    with opened(target, suite) as make:
        has = capabilities(make, suite)
        this = Run(suite.kind, str(target), has, seed, [Outcome(prop) for prop in chosen])

        def keep(outcome: Outcome) -> None:
            outcome.script = replay.write(outcome, suite.kind, target, options.failures)

        run(
            this,
            make,
            suite.capabilities(),
            seconds=options.seconds,
            known=known,
            watcher=watcher_for(options.seconds, len(chosen)),
            on_failure=keep,
        )
        this.numbers = suite.numbers()
    for path in options.report:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(report.FORMATS[_format_of(path)](this))
    print(report.FORMATS[options.format](this), end="")
    return this.exit_status()


def _target(options: argparse.Namespace) -> Target:
    if (options.target is None) == (options.command is None):
        raise BadUsage("give either TARGET (module:name or a URL) or --command.")
    pairs = [text.partition("=") for text in options.option]
    for name, equals, value in pairs:
        if not equals:
            raise BadUsage(f"--option {name}{value} has no value: write NAME=VALUE.")
    return Target(options.target, options.command, {name: value for name, _, value in pairs})


def _format_of(path: Path) -> str:
    if path.suffix not in report.ENDINGS:
        raise BadUsage(
            f"--report {path}: its ending says the format, and is one of "
            f"{', '.join(report.ENDINGS)}."
        )
    return report.ENDINGS[path.suffix]


def selected(properties: tuple[Property, ...], patterns: Sequence[str]) -> list[Property]:
    """The properties whose name matches a pattern (* and ?) or has it as a part; all without one.

    Raises:
        BadUsage: A pattern matches none.
    """
    names = [prop.name for prop in properties]
    chosen: set[str] = set()
    for pattern in patterns:
        found = {name for name in names if fnmatch.fnmatch(name, pattern) or pattern in name}
        if not found:
            raise BadUsage(f"--only {pattern} matches no property{near(pattern, names)}.")
        chosen |= found
    return [prop for prop in properties if not patterns or prop.name in chosen]


def read_known(path: Path, suite: Suite) -> dict[str, str]:
    """Known failures, and why: one a line, `property  # why`.

    Raises:
        BadUsage: The file cannot be read, or names a property that the suite has not.
    """
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise BadUsage(f"--known {path}: {error.strerror}.") from error
    names = [prop.name for prop in suite.properties()]
    known: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        name, _, why = (part.strip() for part in line.partition("#"))
        if name and name not in names:
            raise BadUsage(
                f"--known {path}, line {number}: the suite {suite.kind} has no property "
                f"{name!r}{near(name, names)}."
            )
        if name:
            known[name] = why or "no reason is given"
    return known


def _failure(options: argparse.Namespace) -> replay.Failure:
    """What a script repeats, on the target that the command names if it names one."""
    failure = replay.read(options.replay)
    if options.kind not in (None, failure.kind):
        raise BadUsage(f"{options.replay} is of the kind {failure.kind}, not {options.kind}.")
    if options.target is None and options.command is None:
        return failure
    return replace(failure, target=_target(options))


def _list(options: argparse.Namespace) -> int:
    """Prints the kinds, or the properties and the capabilities of one."""
    if options.kind is None:
        print("\n".join(SUITES))
        return 0
    suite = suite_of(options.kind)
    for prop in selected(suite.properties(), options.only):
        number = f" ({prop.invariant})" if prop.invariant else ""
        needs = f" Needs {', '.join(prop.needs)}." if prop.needs else ""
        print(f"{prop.name}{number}\n    {prop.sentence}{needs}")
    if suite.capabilities():
        print("\nCapabilities of a target:")
    for word, says in suite.capabilities().items():
        print(f"{word}\n    {says}")
    return 0
