"""The table of planted bugs keeps up with the code: each can still be planted."""

import ast

import pytest

from tests.meta.trees import ROOT
from tests.mutation import table
from tests.mutation.by_hand import text_of
from tests.mutation.generated import FOLDERS, all_generated
from tests.mutation.mutants import MUTANTS
from tests.mutation.planting import Mutant

FOLDERS_OF_THE_ENGINE = (
    "core", "engine", "guided", "layers", "lora", "models", "sampling", "serving", "tokenization",
    "weights", "worker",
)  # fmt: skip
WITH_BUGS = [*(f"jax_engine/{name}" for name in FOLDERS_OF_THE_ENGINE), "cpu_kernels"]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.file}: {m.why}")
def test_mutant_can_be_planted(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text("utf-8")
    ast.parse(mutant.apply(text))
    paths = [part for part in mutant.tests if not part.startswith("-")]
    assert paths and all((ROOT / path).exists() for path in paths)


@pytest.mark.parametrize("folder", WITH_BUGS)
def test_every_folder_has_bugs_written_by_hand(folder: str) -> None:
    assert sum(mutant.file.startswith(f"{folder}/") for mutant in MUTANTS) >= 5


def test_no_bug_is_there_twice() -> None:
    assert len(MUTANTS) >= 250
    assert len({(m.file, m.old, m.new) for m in MUTANTS}) == len(MUTANTS)
    assert len({text_of(mutant) for mutant in MUTANTS}) == len(MUTANTS)


def test_bugs_made_by_rule_have_names_of_their_own() -> None:
    names = [mutant.name for mutant in all_generated(list(FOLDERS))]
    assert len(set(names)) == len(names) > 2000


def test_the_table_is_that_of_the_verdicts() -> None:
    """Written by `python -m tests.mutation --table`."""
    assert table.PAGE.read_text("utf-8") == table.page()
