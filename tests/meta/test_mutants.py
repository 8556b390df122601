"""The table of planted bugs keeps up with the code: each can still be planted."""

import ast

import pytest

from tests.meta.trees import ROOT
from tests.mutation.mutants import MUTANTS
from tests.mutation.planting import Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.file}: {m.why}")
def test_mutant_can_be_planted(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text("utf-8")
    ast.parse(mutant.apply(text))
    paths = [part for part in mutant.tests if not part.startswith("-")]
    assert paths and all((ROOT / path).exists() for path in paths)


def test_there_are_enough_of_them() -> None:
    assert len(MUTANTS) >= 40
    assert len({(m.file, m.old, m.new) for m in MUTANTS}) == len(MUTANTS)
