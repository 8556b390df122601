"""Which files of tests kill the bugs of which functions: `killers.tsv`, which is committed.

A row is a file of the engine, how many groups of rules were tried (`RULES`), a few files of tests,
and the keys of functions: each bug that those rules make of them was killed by an example (not by
chance) in one of those files, or changes nothing. So a bug that survives there has a cause: a test
is weaker than it was, or the function's surroundings have changed. Functions that were edited are
in no row until their bugs are judged again.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.generated import RULES, Generated, files_of
from tests.mutation.planting import ROOT
from tests.mutation.reach import all_measured
from tests.mutation.verdicts import Verdicts, holds

TABLE = Path(__file__).parent / "killers.tsv"
MOST_FILES = 3
# Of a file of tests: what takes longer leaves a sample no time for bugs.
MOST_S = 20.0


@dataclass(frozen=True)
class Row:
    """What kills the bugs of some functions of a file."""

    file: str
    groups: int
    tests: tuple[str, ...]
    keys: frozenset[str]

    def covers(self, mutant: Generated) -> bool:
        rules = {rule for group in RULES[: self.groups] for rule in group}
        return (
            mutant.file == self.file
            and mutant.function.key in self.keys
            and mutant.name.rule in rules
        )


def read() -> list[Row]:
    rows = []
    for text in TABLE.read_text("utf-8").splitlines() if TABLE.exists() else ():
        file, groups, tests, keys = text.split("\t")
        rows.append(Row(file, int(groups), tuple(tests.split()), frozenset(keys.split())))
    return rows


def note(folder: str, known: Verdicts, mutants: list[Generated]) -> None:
    """Writes a folder's rows anew, from verdicts by tests that were measured."""
    killed_in: dict[str, dict[str, list[tuple[int, str]]]] = {}
    took: Counter[str] = Counter()
    examples = set()
    for one in all_measured():
        took[one.file] += one.seconds
        if not one.by_chance:
            examples.add(one.test)
    for mutant in mutants:
        test = known[mutant.name].test if holds(mutant, known) else ""
        file = test.split("::")[0]
        if test not in examples or took[file] > MOST_S:
            file = ""
        group = 1 + next(i for i, rules in enumerate(RULES) if mutant.name.rule in rules)
        bugs = killed_in.setdefault(mutant.file, {}).setdefault(mutant.function.key, [])
        bugs.append((group, file))
    rows = [row for file, keys in killed_in.items() for row in _rows(file, keys)]
    ours = {path.relative_to(ROOT).as_posix() for path in files_of(folder)}
    _write([*(row for row in read() if row.file not in ours), *rows])


def _rows(file: str, killed_in: dict[str, list[tuple[int, str]]]) -> list[Row]:
    """One for the functions of which all groups of rules were tried, and one for each fewer."""
    rows: list[Row] = []
    for groups in range(len(RULES), 0, -1):
        done = {key for row in rows for key in row.keys}
        sure = {}
        for key, bugs in killed_in.items():
            files = [test for group, test in bugs if group <= groups]
            if key not in done and files and all(files):
                sure[key] = files
        tests = _most_telling(sure)
        keys = frozenset(key for key, files in sure.items() if set(files) <= set(tests))
        if keys:
            rows.append(Row(file, groups, tests, keys))
    return rows


def _most_telling(sure: dict[str, list[str]]) -> tuple[str, ...]:
    """A few files of tests, those first that kill most of what is not killed yet."""
    counts = Counter(file for files in sure.values() for file in files)
    return tuple(file for file, _ in counts.most_common(MOST_FILES))


def _write(rows: list[Row]) -> None:
    rows.sort(key=lambda row: (row.file, -row.groups))
    texts = [
        "\t".join((row.file, str(row.groups), " ".join(row.tests), " ".join(sorted(row.keys))))
        for row in rows
    ]
    TABLE.write_text("\n".join([*texts, ""]), "utf-8")
