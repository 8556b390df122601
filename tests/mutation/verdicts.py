"""What became of each generated bug: kept in a table that is committed, a file a folder.

A verdict holds as long as its function is what it was. "equivalent" is written by hand, with the
reason: put it in the place of "survived".
"""

from dataclasses import dataclass
from pathlib import Path

from tests.mutation.generated import FOLDERS, Generated, Name

KEPT_IN = Path(__file__).parent / "verdicts"
KINDS = ("killed", "equivalent", "survived")


@dataclass(frozen=True)
class Verdict:
    """How a bug was judged.

    Attributes:
        key: Of the function at that time.
        kind: "killed", "equivalent" or "survived".
        by: The test that noticed; or the reason why there is nothing to notice; or what was tried.
        change: The code and what stood in its place.
    """

    key: str
    kind: str
    by: str
    change: str


Verdicts = dict[Name, Verdict]


def read(folder: str) -> Verdicts:
    """The verdicts on a folder's bugs.

    Raises:
        ValueError: A line of the table is not one.
    """
    path = KEPT_IN / f"{folder}.tsv"
    verdicts: Verdicts = {}
    for text in path.read_text("utf-8").splitlines() if path.exists() else ():
        kind, file, function, rule, index, key, line, change, by = text.split("\t")
        if kind not in KINDS or not by:
            raise ValueError(f"{path.name}: not a verdict: {text}")
        name = Name(f"{FOLDERS[folder]}/{file}", function, rule, line, int(index))
        verdicts[name] = Verdict(key, kind, by, change)
    return verdicts


def write(folder: str, verdicts: Verdicts, mutants: list[Generated]) -> None:
    """Keeps the verdicts on the bugs that there are, in their order."""
    rows = []
    for name in (mutant.name for mutant in mutants):
        if name in verdicts:
            one = verdicts[name]
            file = name.file.removeprefix(f"{FOLDERS[folder]}/")
            cells = (one.kind, file, name.function, name.rule, str(name.index), one.key)
            rows.append("\t".join((*cells, name.line, one.change, one.by)))
    KEPT_IN.mkdir(exist_ok=True)
    (KEPT_IN / f"{folder}.tsv").write_text("\n".join([*rows, ""]), "utf-8")


def change_of(mutant: Generated) -> str:
    """What a bug changes, in one line."""
    old, new = (" ".join(code.split()) for code in (mutant.old, mutant.new))
    if mutant.name.rule == "delete":
        return f"without {old}"
    return f"{old} -> {new}"
