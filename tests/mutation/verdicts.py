"""What became of each bug made by rule: kept in `.mutation`, a table a folder, and not in git.

A verdict holds as long as its function is what it was.
"""

from dataclasses import dataclass

from tests.mutation.generated import Generated, Name
from tests.mutation.reach import KEPT_IN as SCRATCH

KEPT_IN = SCRATCH / "verdicts"


@dataclass(frozen=True)
class Verdict:
    """How a bug was judged.

    Attributes:
        key: Key of the function at that time.
        kind: "killed" or "survived".
        by: The test that noticed; or what was tried.
    """

    key: str
    kind: str
    by: str

    @property
    def test(self) -> str:
        """The test that noticed, without how it ended."""
        return self.by.removesuffix(" (hung)").removesuffix(" (died)")


Verdicts = dict[Name, Verdict]


def read(folder: str) -> Verdicts:
    """The verdicts on a folder's bugs."""
    path = KEPT_IN / f"{folder}.tsv"
    verdicts: Verdicts = {}
    for text in path.read_text("utf-8").splitlines() if path.exists() else ():
        kind, file, function, rule, index, key, line, by = text.split("\t")
        verdicts[Name(file, function, rule, line, int(index))] = Verdict(key, kind, by)
    return verdicts


def write(folder: str, verdicts: Verdicts, mutants: list[Generated]) -> None:
    """Keeps the verdicts on the bugs that there are, in their order."""
    rows = []
    for name in (mutant.name for mutant in mutants):
        if name in verdicts:
            one = verdicts[name]
            cells = (one.kind, name.file, name.function, name.rule, str(name.index), one.key)
            rows.append("\t".join((*cells, name.line, one.by)))
    KEPT_IN.mkdir(parents=True, exist_ok=True)
    (KEPT_IN / f"{folder}.tsv").write_text("\n".join([*rows, ""]), "utf-8")


def holds(mutant: Generated, known: Verdicts) -> bool:
    """Whether there is a verdict on the bug, and of the function as it is."""
    return mutant.name in known and known[mutant.name].key == mutant.function.key


def change_of(mutant: Generated) -> str:
    """What a bug changes, in one line."""
    old, new = (" ".join(code.split()) for code in (mutant.old, mutant.new))
    if mutant.name.rule == "delete":
        return f"without {old}"
    return f"{old} -> {new}"
