"""How many bugs were planted and what became of them: `results.json`, which is committed.

`make mutation` writes it from the verdicts in `.mutation`, which are not. A folder's numbers are
replaced only by those of at least as many bugs: a part of a run, or a run that begins anew, takes
nothing away.
"""

import json
import subprocess
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.mutation.generated import Generated
from tests.mutation.planting import ROOT
from tests.mutation.verdicts import Verdicts, holds

TABLE = Path(__file__).parent / "results.json"


@dataclass(frozen=True)
class Result:
    """What became of the bugs of one folder, or of those written by hand in it.

    Attributes:
        bugs: How many there are.
        killed: How many a test noticed.
        survivors: Those that were planted and not noticed.
        day: When this was written.
        commit: The last commit by then.
    """

    bugs: int
    killed: int
    survivors: list[str] = field(default_factory=list)
    day: str = ""
    commit: str = ""

    @property
    def planted(self) -> int:
        return self.killed + len(self.survivors)


def read() -> dict[str, Result]:
    """The results of bugs made by rule, by folder; "by hand FOLDER": of those written by hand."""
    found = json.loads(TABLE.read_text("utf-8")) if TABLE.exists() else {}
    return {name: Result(**one) for name, one in found.items()}


def note(folder: str, known: Verdicts, mutants: list[Generated]) -> bool:
    """Keeps the verdicts' counts, if there are as many as before; whether they were kept."""
    valid = [one for one in mutants if holds(one, known)]
    lost = [str(one) for one in valid if known[one.name].kind == "survived"]
    return keep(folder, len(mutants), len(valid) - len(lost), lost)


def keep(name: str, bugs: int, killed: int, survivors: list[str]) -> bool:
    """Keeps counts, if there are as many as before; whether they were kept."""
    every = read()
    new = Result(bugs, killed, survivors, time.strftime("%Y-%m-%d"), commit())
    if name in every and new.planted < min(every[name].planted, bugs):
        print(f"{name}: {every[name].planted} were judged before, now {new.planted}: not kept")
        return False
    every[name] = new
    text = json.dumps({key: asdict(every[key]) for key in sorted(every)}, indent=1)
    TABLE.write_text(text + "\n", "utf-8")
    return True


def commit() -> str:
    """The last commit, in short; the day where there is no git."""
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or time.strftime("%Y-%m-%d")
