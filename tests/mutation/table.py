"""docs/mutants.md: how many bugs were planted and what became of them, from the verdicts."""

from collections import Counter

from tests.mutation import verdicts
from tests.mutation.by_hand import noticed, text_of
from tests.mutation.generated import FOLDERS, Name
from tests.mutation.mutants import MUTANTS
from tests.mutation.planting import ROOT
from tests.mutation.verdicts import KINDS, Verdict

PAGE = ROOT / "docs" / "mutants.md"
INTRODUCTION = """\
# Planted bugs

Do the tests notice a bug when there is one? Here are two lists of bugs that were planted, one at a
time, and what became of them. `make mutation` plants all of them, CI a sample.
`python -m tests.mutation --table` writes this page from the verdicts in `tests/mutation/verdicts/`.

## By rule

Rules make bugs from the code: another operator, a constant plus one, a condition negated, a
statement deleted, arguments swapped; at most three a line. Messages, annotations and log lines are
left alone.

- *Killed*: a test fails, or runs far longer than it should.
- *Equivalent*: nothing that can be seen changes; the reason is given below.
- *Survived*: none of the tests that its folder names fails. It is a hole in these tests, or it is
  equivalent and nobody has said why yet.

Planted are those that have a verdict: where there are none, nobody has judged the folder yet
(`python -m tests.mutation --generated engine`). Of the server, the families, the commands and
vLLM's names there are thousands: some are drawn by a seed
(`python -m tests.mutation --generated serving --draw 40 --seed 40.4`). Their survivors were tried
with a part of the tests: not with the goldens of all families, nor with servers in processes.

"""
BY_HAND = """
## By hand

Mistakes that somebody might make, each with the tests that must notice it: `tests/mutation/`, a
file a subject (`python -m tests.mutation --list`). Which test noticed a bug has been kept since
this page is written: the others were tried before, or wait for the next `make mutation`.

"""


def page() -> str:
    """The page's text."""
    every = {folder: verdicts.read(folder) for folder in FOLDERS}
    lines = ["| folder | planted | killed | equivalent | survived |", "|---|---:|---:|---:|---:|"]
    total: Counter[str] = Counter()
    for folder, known in every.items():
        counts = Counter(one.kind for one in known.values())
        total += counts
        lines.append(_row(f"`{FOLDERS[folder]}/`", counts))
    lines.append(_row("**all**", total))
    text = INTRODUCTION + "\n".join(lines) + "\n" + BY_HAND + _by_hand()
    for kind, title in (("survived", "Survivors"), ("equivalent", "Equivalent")):
        named = "\n".join(_named(folder, kind, known) for folder, known in every.items())
        text += f"\n## {title}\n\n{named if named.strip() else 'None.\n'}"
    return text.rstrip("\n") + "\n"


def _row(name: str, counts: Counter[str]) -> str:
    numbers = [counts.total(), *(counts[kind] for kind in KINDS)]
    return f"| {name} | {' | '.join(f'{number:,}' for number in numbers)} |"


def _by_hand() -> str:
    planted: Counter[str] = Counter()
    caught: Counter[str] = Counter()
    tests = noticed()
    for mutant in MUTANTS:
        folder = "/".join(mutant.file.split("/")[: 2 if mutant.file.count("/") > 1 else 1])
        planted[folder] += 1
        caught[folder] += text_of(mutant) in tests
    rows = [f"| `{name}/` | {planted[name]:,} | {caught[name]:,} |" for name in sorted(planted)]
    last = f"| **all** | {planted.total():,} | {caught.total():,} |"
    return "\n".join(
        ["| folder | in the list | noticed by a named test |", "|---|---:|---:|", *rows, last, ""]
    )


def _named(folder: str, kind: str, known: dict[Name, Verdict]) -> str:
    files: dict[str, list[str]] = {}
    for name, one in known.items():
        if one.kind == kind:
            note = f": {one.by}" if kind == "equivalent" or one.by.startswith("no test") else ""
            files.setdefault(name.file, []).append(
                f"- `{name.function}`: {_code(one.change)}{note}"
            )
    return "".join(f"**`{file}`**\n\n" + "\n".join(rows) + "\n\n" for file, rows in files.items())


def _code(text: str) -> str:
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}"


def write() -> None:
    PAGE.write_text(page(), "utf-8")
