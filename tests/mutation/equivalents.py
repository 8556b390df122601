"""Bugs made by rule that change nothing that can be seen: a table written by hand, with reasons.

A row is the file, the function and its key, the rule and the line of the bug, and the reason. It
holds as long as the function is what it was. Then the bug is planted again; if it survives, look
whether the reason still holds, and write the new key.
"""

from pathlib import Path

from tests.mutation.generated import Generated, Name

TABLE = Path(__file__).parent / "equivalents.tsv"


def read() -> dict[Name, tuple[str, str]]:
    """The function's key and the reason, by the bug's name."""
    found = {}
    for row in TABLE.read_text("utf-8").splitlines():
        file, function, key, rule, line, index, reason = row.split("\t")
        found[Name(file, function, rule, line, int(index))] = (key, reason)
    return found


def is_equivalent(mutant: Generated, known: dict[Name, tuple[str, str]]) -> bool:
    return mutant.name in known and known[mutant.name][0] == mutant.function.key
