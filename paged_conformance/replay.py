"""Scripts that repeat one failure alone: `python FILE`, or `paged-conformance --replay FILE`.

A script holds the suite's kind, the property's name, the target and the example. It needs
`paged_conformance` and the target, and nothing of the run that wrote it.
"""

import ast
import json
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paged_conformance.errors import TargetError
from paged_conformance.properties import Example, Lacking, Property
from paged_conformance.runs import Outcome
from paged_conformance.search import Found, attempt, note, note_lacking
from paged_conformance.suites import NoSuite, suite_of
from paged_conformance.targets import Target, capabilities, near, opened

FLAKY_TIMES = 50  # how often an example is repeated that did not fail each time

SCRIPT = '''\
"""{title}

{sentence}

Seen: {says}

Repeat it in the folder in which the target was found: python {file}
"""

from paged_conformance.replay import repeat

KIND = {kind!r}
PROPERTY = {name!r}
TARGET = {target!r}
TIMES = {times}
EXAMPLE = r"""
{example}
"""

if __name__ == "__main__":
    repeat(KIND, PROPERTY, TARGET, EXAMPLE, TIMES)
'''


class BadScript(Exception):
    """A file is no script of ours; the message says what it lacks."""


@dataclass(frozen=True)
class Failure:
    """What a script repeats."""

    kind: str
    name: str
    target: Target
    example: Example
    times: int


def write(outcome: Outcome, kind: str, target: Target, folder: Path) -> Path:
    """Writes the script that repeats a failure, and returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{kind.replace('.', '-')}-{outcome.prop.name}.py"
    number = f" ({outcome.prop.invariant})" if outcome.prop.invariant else ""
    named = {"name": target.name, "command": target.command, "options": target.options}
    text = SCRIPT.format(
        title=f"{kind}: {outcome.prop.name}{number}",
        sentence=_prose(outcome.prop.sentence),
        says=_prose(outcome.found.says),
        file=path.as_posix(),
        kind=kind,
        name=outcome.prop.name,
        target={key: value for key, value in named.items() if value},
        times=FLAKY_TIMES if outcome.found.flaky else 1,
        example=pretty(outcome.found.example),
    )
    path.write_text(text)
    return path


def read(path: Path) -> Failure:
    """Reads a script without running it.

    Raises:
        BadScript: It is none, or was changed so that it says no longer what to repeat.
    """
    try:
        tree = ast.parse(path.read_text())
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise BadScript(f"{path} cannot be read as a script: {error}") from error
    values: dict[str, Any] = {}
    for line in tree.body:
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
            try:
                values[line.targets[0].id] = ast.literal_eval(line.value)
            except ValueError:
                continue
    missing = {"KIND", "PROPERTY", "TARGET", "TIMES", "EXAMPLE"} - set(values)
    if missing:
        raise BadScript(f"{path} is no script of a failure: it has no {', '.join(sorted(missing))}")
    try:
        example = json.loads(values["EXAMPLE"])
    except ValueError as error:
        raise BadScript(f"{path} has an EXAMPLE that is no JSON: {error}") from error
    target = Target(**values["TARGET"])
    return Failure(values["KIND"], values["PROPERTY"], target, example, values["TIMES"])


def again(failure: Failure) -> Found:
    """Tries the example on fresh targets, as often as it says or until it fails.

    Raises:
        NoSuite: There is no such suite, or no such property in it.
        TargetError: The target cannot be loaded.
    """
    suite = suite_of(failure.kind)
    prop = named(failure.name, suite.properties())
    found = Found()
    with opened(failure.target, suite) as make:
        capabilities(make, suite)
        for _ in range(failure.times):
            found.num_examples += 1
            try:
                attempt(prop, make, failure.example)
            except Lacking as lacking:
                note_lacking(found, lacking)
            except Exception as error:
                note(found, failure.example, error)
                break
    return found


def named(name: str, properties: tuple[Property, ...]) -> Property:
    """The property with this name.

    Raises:
        NoSuite: The suite has none.
    """
    for prop in properties:
        if prop.name == name:
            return prop
    meant = near(name, [prop.name for prop in properties])
    raise NoSuite(f"The suite has no property {name!r}{meant}.")


def repeat(kind: str, name: str, target: dict[str, Any], example: str, times: int = 1) -> None:
    """What a script calls: exits with 1 if it fails again, with 0 if it holds."""
    sys.exit(tell(Failure(kind, name, Target(**target), json.loads(example), times)))


def tell(failure: Failure) -> int:
    """Repeats a failure, prints what is seen, and returns the exit status."""
    try:
        found = again(failure)
        prop = named(failure.name, suite_of(failure.kind).properties())
    except (NoSuite, TargetError) as error:
        print(error, file=sys.stderr)
        return 2
    number = f" ({prop.invariant})" if prop.invariant else ""
    print(f"{failure.kind}: {failure.name}{number}\n{prop.sentence}\n")
    print(pretty(failure.example) + "\n")
    if found.failed:
        print(found.trace or f"It fell: {found.says}")
        return 1
    if found.num_lacking:
        print(f"The example does not count: {found.lacks}")
        return 3
    print("It held." if failure.times == 1 else f"It held {failure.times} times.")
    return 0


def pretty(example: Example, width: int = 88) -> str:
    """JSON in which what fits into a line stands in one."""
    short = json.dumps(example)
    if len(short) <= width or not isinstance(example, list | dict) or not example:
        return short
    if isinstance(example, dict):
        parts = [f"{json.dumps(k)}: {pretty(v, width - 2)}" for k, v in example.items()]
    else:
        parts = [pretty(part, width - 2) for part in example]
    opening, closing = "{}" if isinstance(example, dict) else "[]"
    return f"{opening}\n" + textwrap.indent(",\n".join(parts), "  ") + f"\n{closing}"


def _prose(text: str) -> str:
    """Text for a docstring: neither quotes nor backslashes may end it."""
    lines = [textwrap.fill(line, 96) for line in text.splitlines()]
    return "\n".join(lines).replace("\\", "\\\\").replace('"""', "'''").rstrip('"')
