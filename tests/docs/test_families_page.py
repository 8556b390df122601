"""docs/families.md: it is what the script writes, and each family has a measured difference."""

from scripts.families.models import WITHOUT_CASES, families, layers_of
from scripts.families.page import PAGE, page
from scripts.families.words import pattern
from tests.golden.families.checkpoints import cases
from tests.golden.families.parity import figures
from tests.models.test_families import TOLERANCE


def test_the_page_is_that_of_the_specifications() -> None:
    """After a change: `python -m scripts.families`."""
    assert PAGE.read_text("utf-8") == page()


def test_every_checkpoint_has_a_difference_below_the_tolerance() -> None:
    """After new cases: `python -m tests.golden.families.parity`."""
    assert set(figures()) == set(cases())
    assert max(figures().values()) < TOLERANCE


def test_configurations_stand_in_only_where_there_is_no_checkpoint() -> None:
    assert {family.name for family in families() if not family.cases} == set(WITHOUT_CASES)


def test_the_readme_counts_the_families() -> None:
    readme = (PAGE.parents[1] / "README.md").read_text("utf-8")
    assert f"\n{len(families())} [model families](docs/families.md) run" in readme


def test_a_docstring_names_the_models_and_says_what_is_special() -> None:
    assert [one.name for one in families() if not (one.title and one.special)] == []


def test_layers_are_those_of_the_groups_in_order() -> None:
    (gemma,) = (one for one in families() if one.name == "gemma3")
    windows = [layer.attention.window for layer in layers_of(gemma.specs[0])]
    assert windows == ([5] * 5 + [None]) * 4


def test_a_pattern_is_found_only_where_it_repeats() -> None:
    yes, no = True, False
    assert pattern([yes, yes, no, yes, yes, no]) == (2, 1)
    assert pattern([yes, no, no, yes, no, no]) == (1, 2)
    assert pattern([yes, no, yes]) == (1, 1)
    assert pattern([no, yes, yes]) is None  # it begins without
    assert pattern([yes, no, yes, yes]) is None
    assert pattern([yes, yes]) is None
