"""The table of bugs written by hand: `MUTANTS` of each file of this folder that has one."""

from importlib import import_module
from pathlib import Path

from tests.mutation.planting import Mutant

_FILES = sorted(Path(__file__).parent.glob("*.py"))
MUTANTS: list[Mutant] = [
    mutant
    for path in _FILES
    if "\nMUTANTS" in path.read_text("utf-8") and path != Path(__file__)
    for mutant in import_module(f"tests.mutation.{path.stem}").MUTANTS
]
