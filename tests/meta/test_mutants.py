"""The table of planted bugs keeps up with the code: each can still be planted."""

import ast

import pytest

from tests.meta.trees import ROOT
from tests.mutation import equivalents, killers, table, where
from tests.mutation.by_hand import text_of
from tests.mutation.generated import FOLDERS, all_generated, files_of
from tests.mutation.mutants import MUTANTS
from tests.mutation.planting import Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.file}: {m.why}")
def test_mutant_can_be_planted(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text("utf-8")
    ast.parse(mutant.apply(text))
    paths = [part for part in mutant.tests if not part.startswith("-")]
    assert paths and all((ROOT / path).exists() for path in paths)


@pytest.mark.parametrize("folder", ["cpu_kernels", "pallas_kernels", "reference"])
def test_what_no_rule_reaches_has_bugs_written_by_hand(folder: str) -> None:
    assert sum(mutant.file.startswith(f"{folder}/") for mutant in MUTANTS) >= 100


def test_every_module_of_the_engine_is_in_one_folder() -> None:
    files = [path for folder in FOLDERS for path in files_of(folder)]
    assert sorted(files) == sorted((ROOT / "jax_engine").rglob("*.py"))
    assert {*where.WHOLE, *where.MORE, *where.CHOSEN} <= FOLDERS.keys()


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_has_tests(folder: str) -> None:
    """Who adds a package says in `where.py` which tests must notice its bugs."""
    tests = where.tests_of(folder)
    assert tests and all((ROOT / path).exists() for path in tests)


def test_no_bug_is_there_twice() -> None:
    assert len(MUTANTS) >= 900
    assert len({(m.file, m.old, m.new) for m in MUTANTS}) == len(MUTANTS)
    assert len({text_of(mutant) for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.slow
def test_bugs_made_by_rule_have_names_of_their_own() -> None:
    names = [mutant.name for mutant in all_generated(list(FOLDERS))]
    assert len(set(names)) == len(names) > 20_000
    gone = equivalents.read().keys() - set(names)
    assert not gone, f"no longer in the code: take them out of {equivalents.TABLE.name}"


@pytest.mark.slow
def test_a_sample_has_bugs_to_draw() -> None:
    """Functions that were edited drop out until their folder is judged again."""
    rows = killers.read()
    every = all_generated(list(FOLDERS))
    by_file = {row.file: [other for other in rows if other.file == row.file] for row in rows}
    covered = [one for one in every if any(row.covers(one) for row in by_file.get(one.file, ()))]
    assert len(covered) >= 500, "make mutation"
    assert {test for row in rows for test in row.tests if (ROOT / test).is_file()}


@pytest.mark.slow
def test_the_page_is_that_of_the_results() -> None:
    """Written by `python -m tests.mutation --table`."""
    assert table.PAGE.read_text("utf-8") == table.page()
