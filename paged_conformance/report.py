"""What a run found, as text, Markdown, JSON or JUnit's XML."""

import json
import platform
from collections.abc import Callable
from importlib import metadata
from xml.etree import ElementTree

from paged_conformance.replay import pretty
from paged_conformance.runs import Outcome, Run, Status


def text(run: Run) -> str:
    """For a terminal: what fell with its example, then a line a property."""
    lines = [f"{run.kind}: {run.target}", ""]
    for outcome in run.those(Status.FELL, Status.ERROR):
        lines += [*failure(outcome), ""]
    width = max((len(o.prop.name) for o in run.outcomes), default=0)
    for outcome in run.outcomes:
        lines.append(f"  {outcome.prop.name:<{width}}  {_row(outcome)}".rstrip())
    lines += [f"  {name}: {number:g}" for name, number in sorted(run.numbers.items())]
    return "\n".join([*lines, "", summary(run), ""])


def failure(outcome: Outcome) -> list[str]:
    """The lines of one failure: the property, what was seen, the example, its script."""
    prop, found = outcome.prop, outcome.found
    if outcome.status is Status.ERROR:
        return [f"{prop.name}: the suite itself failed.", outcome.why.rstrip()]
    number = f" ({prop.invariant})" if prop.invariant else ""
    lines = [f"FELL {prop.name}{number}", prop.sentence, ""]
    lines += [found.trace.rstrip() if found.trace else f"Seen: {found.says}", ""]
    if found.flaky:
        lines += ["It did not fail each time that the example was repeated.", ""]
    lines += ["The smallest example:", pretty(found.example)]
    if outcome.script is not None:
        lines += ["", f"Repeat it: python {outcome.script.as_posix()}"]
    return lines


def _row(outcome: Outcome) -> str:
    found = outcome.found
    count = f"{found.num_examples - found.num_lacking:,} examples"
    match outcome.status:
        case Status.HELD if outcome.unexpected:
            return f"held   {count}: it is in the file of known failures, take it out"
        case Status.HELD:
            return f"held   {count}" + (", all there are" if found.exhausted else "")
        case Status.FELL:
            return f"FELL   after {count}"
        case Status.KNOWN:
            return f"known  it fell after {count}; {outcome.why}"
        case Status.SKIPPED:
            return f"skip   {outcome.why}"
        case Status.ERROR:
            return "ERROR  the suite itself failed"
        case Status.NOT_RUN:
            return "-      not run"


def summary(run: Run) -> str:
    """One sentence with the numbers."""
    counts = ", ".join(
        f"{len(run.those(status))} {status}" for status in Status if run.those(status)
    )
    examples = sum(outcome.found.num_examples for outcome in run.outcomes)
    end = " It was interrupted." if run.interrupted else ""
    if run.exit_status() == 3:
        end += " Nothing ran, which counts as a failure."
    return f"{counts}: {examples:,} examples in {run.seconds:.1f} s, seed {run.seed}.{end}"


def markdown(run: Run) -> str:
    """For a summary of a job: a table, and each failure with its example."""
    lines = [f"## {run.kind}: `{run.target}`", "", summary(run), ""]
    lines += ["| property | invariant | | |", "|---|---|---|---|"]
    for outcome in run.outcomes:
        status, _, rest = _row(outcome).partition(" ")
        cells = (outcome.prop.name, outcome.prop.invariant or "", status, rest.strip())
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    if run.numbers:
        lines += ["", "| measured | |", "|---|---:|"]
        lines += [f"| {name} | {number:g} |" for name, number in sorted(run.numbers.items())]
    for outcome in run.those(Status.FELL, Status.ERROR):
        lines += ["", f"### {outcome.prop.name}", "", "```text", *failure(outcome), "```"]
    return "\n".join([*lines, ""])


def as_json(run: Run) -> str:
    """For programs. An example is as the property's check takes it."""
    report = {
        "kind": run.kind,
        "target": run.target,
        "capabilities": sorted(run.has.words),
        "sizes": run.has.sizes,
        "seed": run.seed,
        "seconds": round(run.seconds, 3),
        "numbers": run.numbers,
        "interrupted": run.interrupted,
        "exit_status": run.exit_status(),
        "version": version(),
        "python": platform.python_version(),
        "properties": [_as_dict(outcome) for outcome in run.outcomes],
    }
    return json.dumps(report, indent=1) + "\n"


def _as_dict(outcome: Outcome) -> dict[str, object]:
    found = outcome.found
    entry: dict[str, object] = {
        "property": outcome.prop.name,
        "invariant": outcome.prop.invariant,
        "sentence": outcome.prop.sentence,
        "status": str(outcome.status),
        "examples": found.num_examples,
        "lacking": found.num_lacking,
        "seconds": round(found.seconds, 3),
    }
    if outcome.why:
        entry["why"] = outcome.why
    if outcome.unexpected:
        entry["unexpected"] = True
    if found.failed:
        entry |= {"example": found.example, "says": found.says, "flaky": found.flaky}
        entry |= {"trace": found.trace, "script": str(outcome.script) if outcome.script else None}
    return entry


def junit(run: Run) -> str:
    """For programs that count tests: a test case a property."""
    suite = ElementTree.Element(
        "testsuite",
        name=f"paged-conformance {run.kind}",
        tests=str(len(run.outcomes)),
        failures=str(len(run.those(Status.FELL))),
        errors=str(len(run.those(Status.ERROR))),
        skipped=str(len(run.those(Status.SKIPPED, Status.KNOWN, Status.NOT_RUN))),
        time=f"{run.seconds:.3f}",
    )
    for outcome in run.outcomes:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=run.kind,
            name=outcome.prop.name,
            time=f"{outcome.found.seconds:.3f}",
        )
        if outcome.status in (Status.FELL, Status.ERROR):
            word = "failure" if outcome.status is Status.FELL else "error"
            says = outcome.found.says if outcome.found.failed else outcome.why
            inner = ElementTree.SubElement(case, word, message=_xml(says))
            inner.text = _xml("\n".join(failure(outcome)))
        elif outcome.status is not Status.HELD:
            ElementTree.SubElement(case, "skipped", message=_xml(outcome.why or "not run"))
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _xml(text: str) -> str:
    """XML has no control characters."""
    return "".join(
        c if c in "\n\t" or (c >= " " and c not in "\ufffe\uffff") else "?" for c in text
    )


def version() -> str:
    """The installed distribution's version; of a checkout without one, "0"."""
    try:
        return metadata.version("paged-conformance")
    except metadata.PackageNotFoundError:
        return "0"


FORMATS: dict[str, Callable[[Run], str]] = {
    "text": text,
    "json": as_json,
    "junit": junit,
    "markdown": markdown,
}
ENDINGS = {".txt": "text", ".json": "json", ".xml": "junit", ".md": "markdown"}
