"""docs/mutants.md: how many bugs were planted and what became of them, from `results.json`."""

from collections import Counter

from tests.mutation import equivalents, results
from tests.mutation.by_hand import BY_HAND
from tests.mutation.generated import FOLDERS, Name, all_generated
from tests.mutation.planting import ROOT
from tests.mutation.results import Result
from tests.mutation.verdicts import change_of

PAGE = ROOT / "docs" / "mutants.md"
INTRODUCTION = """\
# Planted bugs

Do the tests notice a bug when there is one? Here are two lists of bugs that were planted, one at a
time, and what became of them. `make mutation` plants them and writes the counts into
`tests/mutation/results.json`; CI plants a sample. `python -m tests.mutation --table` writes this
page from the counts.

## By rule

Rules make bugs from the code of all of `jax_engine/`: another operator, a constant plus one, a
condition negated or decided, a statement deleted, arguments swapped, an expression that becomes one
of its parts (`a - b` becomes `a`); at most seven a line. Messages, annotations and log lines are
left alone.

- *Killed*: a test fails, or runs far longer than it should.
- *Survived*: none of the tests that its folder names (`tests/mutation/where.py`) fails. It is a
  hole in these tests, or nothing that can be seen changes and nobody has said why yet.
- *Equivalent*: nothing that can be seen changes; the reason is given below.

Where not all are planted, some are drawn by a seed, a function at a time
(`python -m tests.mutation --generated serving --draw 130 --seed 46`), and of `jax_engine/worker/`
those of some files. Their survivors were tried with a part of the tests: quick ones that reach
them, without the goldens of all families, adapters, devices that share a model, and servers in
processes. So a survivor there may be noticed by a test that was not asked.

"""
OF_HANDS = """
## By hand

What no rule says: mistakes in several lines or places, in files, processes and threads, and in
kernels and the oracle. Each names the tests that must notice it: `tests/mutation/`, a file a
subject (`python -m tests.mutation --list`). A bug of the list that is neither noticed nor among the
survivors below has not been planted yet.

"""


def page() -> str:
    """The page's text."""
    every = results.read()
    by_rule = {name: one for name, one in every.items() if name in FOLDERS}
    by_hand = {
        name.removeprefix(BY_HAND): one for name, one in every.items() if name.startswith(BY_HAND)
    }
    text = INTRODUCTION + _by_rule(by_rule) + OF_HANDS + _by_hand(by_hand) + "\n## Survivors\n\n"
    lost = [f"- `{one}`" for result in every.values() for one in map(_quoted, result.survivors)]
    text += "\n".join(lost or ["None."]) + "\n\n## Equivalent\n\n" + _equivalent()
    return text.rstrip("\n") + "\n"


def _by_rule(found: dict[str, Result]) -> str:
    same = Counter(_folder(name) for name in equivalents.read())
    lines = [
        "| folder | bugs | planted | killed | survived | equivalent | on |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    sums = Counter[str]()
    for folder, one in found.items():
        numbers = {
            "bugs": one.bugs,
            "planted": one.planted,
            "killed": one.killed,
            "survived": len(one.survivors),
            "equivalent": same[folder],
        }
        sums.update(numbers)
        lines.append(_row(f"`{FOLDERS[folder]}/`", *numbers.values(), one.day))
    return "\n".join([*lines, _row("**all**", *sums.values(), ""), ""])


def _by_hand(found: dict[str, Result]) -> str:
    lines = ["| folder | in the list | noticed by a named test |", "|---|---:|---:|"]
    lines += [_row(f"`{folder}/`", one.bugs, one.killed) for folder, one in found.items()]
    bugs, killed = sum(r.bugs for r in found.values()), sum(r.killed for r in found.values())
    return "\n".join([*lines, _row("**all**", bugs, killed), ""])


def _row(*cells: str | int) -> str:
    return f"| {' | '.join(f'{c:,}' if isinstance(c, int) else c for c in cells)} |"


def _folder(name: Name) -> str:
    parts = name.file.split("/")
    return parts[1] if len(parts) > 2 else "loose"


def _equivalent() -> str:
    made = {one.name: one for one in all_generated(list(FOLDERS))}
    files: dict[str, list[str]] = {}
    for name, (_, reason) in equivalents.read().items():
        change = _quoted(change_of(made[name]))
        files.setdefault(name.file, []).append(f"- `{name.function}`: `{change}`: {reason}")
    return "\n".join(f"**`{file}`**\n\n" + "\n".join(rows) + "\n" for file, rows in files.items())


def _quoted(text: str) -> str:
    return text.replace("`", "'")


def write() -> None:
    PAGE.write_text(page(), "utf-8")
