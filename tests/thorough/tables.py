"""The two tables of docs/correctness.md that are made from the record and from the tests."""

import re
from collections import Counter

from tests.meta.trees import ROOT
from tests.thorough.named import Named, named
from tests.thorough.record import Run, examples, read

PAGE = ROOT / "docs" / "correctness.md"


def between(text: str, name: str) -> str:
    """What lies between the markers of this name."""
    return text.split(_mark(name, "start"))[1].split(_mark(name, "end"))[0].strip("\n")


def exercised_rows(tests: Named, runs: list[Run]) -> list[str]:
    """A row for each invariant: the tests that name it, and how many examples they ran."""
    counts = examples(runs)
    return [
        f"| I{number} | {_by_file(tests[number])} | {_examples_of(tests[number], counts):,} |"
        for number in sorted(tests)
    ]


def exercised_table(tests: Named, runs: list[Run]) -> str:
    head = ["| | tests that name it | examples |", "|---|---|---:|"]
    return "\n".join([*head, *exercised_rows(tests, runs)])


def runs_table(runs: list[Run]) -> str:
    """A row for each run, and one for all of them."""
    head = [
        "| started (UTC) | commit | seed | minutes | parts | examples | simulations | failures |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    rows = [f"| {run.started} | {run.commit} | {run.seed} | {_numbers(run)} |" for run in runs]
    total = Run("", "", 0)
    for run in runs:
        total.seconds += run.seconds
        total.rounds += run.rounds
        total.failures += run.failures
        total.seen += run.seen
        for file, tests in run.counts.items():
            total.counts.setdefault(file, Counter()).update(tests)
    lines = [f"| **all** | | | {_numbers(total)} |", "", _simulated(total), "", _crowds(runs)]
    return "\n".join([*head, *rows, *lines])


def write() -> None:
    """Writes both into the page."""
    runs, text = read(), PAGE.read_text("utf-8")
    tables = {"thorough": runs_table(runs), "exercised": exercised_table(named(), runs)}
    for name, table in tables.items():
        start, end = _mark(name, "start"), _mark(name, "end")
        before, _, rest = text.partition(start)
        text = f"{before}{start}\n\n{table}\n\n{end}{rest.partition(end)[2]}"
    PAGE.write_text(text, "utf-8")


def without_counts(row: str) -> str:
    """A row of the invariants' table, without its last cell: what must be up to date."""
    return re.sub(r"\| [\d,]+ \|$", "|", row)


def _examples_of(tests: set[str], counts: Counter[str]) -> int:
    """Examples of these tests; of a whole module, where no test is named."""
    return sum(
        count for test, count in counts.items() if test in tests or test.partition("::")[0] in tests
    )


def _by_file(tests: set[str]) -> str:
    files: dict[str, list[str]] = {}
    for test in sorted(tests):
        file, _, name = test.partition("::")
        files.setdefault(file.removeprefix("tests/"), []).extend([f"`{name}`"] if name else [])
    cells = [
        f"`{file}`" + (f": {', '.join(names)}" if names else "") for file, names in files.items()
    ]
    return "; ".join(cells)


def _numbers(run: Run) -> str:
    simulations = sum(run.seen[f"simulated seeds, {worker}"] for worker in ("stub", "tiny"))
    drawn = sum(sum(tests.values()) for tests in run.counts.values())
    cells = [run.seconds / 60, run.rounds.total(), drawn, simulations, len(run.failures)]
    return " | ".join(f"{cell:,.0f}" for cell in cells)


def _simulated(total: Run) -> str:
    def of(what: str) -> str:
        return f"{total.seen[f'simulated {what}']:,}"

    return (
        f"Simulations: {of('seeds, stub')} on a stub of the worker ({of('steps, stub')} steps in "
        f"{of('hours, stub')} simulated hours), and {of('seeds, tiny')} on the real worker with a "
        f"tiny model ({of('steps, tiny')} steps)."
    )


def _crowds(runs: list[Run]) -> str:
    """A sentence about the runs in which no crowd failed."""
    whole = [run for run in runs if not any(one.startswith("crowds") for one in run.failures)]
    compared, engines, preempted = (
        sum(run.seen[name] for run in whole)
        for name in ("requests of crowds compared", "crowds", "a preemption in a crowd")
    )
    return (
        f"Crowds: {compared:,} requests in {engines:,} engines, {preempted:,} of which preempted, "
        "got the same bits alone."
    )


def _mark(name: str, which: str) -> str:
    return f"<!-- {name}:{which} -->"
