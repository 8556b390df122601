"""Which of Hypothesis's profiles draw new examples in each run."""

import pytest
from hypothesis import settings


@pytest.mark.parametrize("profile", ["few", "dev", "ci", "thorough", "rounds"])
def test_a_run_draws_new_examples(profile: str) -> None:
    """Where the variable CI is set, too: there Hypothesis's own default is to repeat them."""
    assert not settings.get_profile(profile).derandomize


@pytest.mark.parametrize("profile", ["mutation", "generated"])
def test_a_planted_bug_meets_the_same_examples(profile: str) -> None:
    assert settings.get_profile(profile).derandomize
