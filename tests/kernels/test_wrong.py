"""Each property of the suite fails for some wrong kernel: none is one that cannot fail."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.kernels.suite import properties
from tests.kernels.wrong.kernels import table, wrong_kernels
from tests.kernels.wrong.plain import Plain

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"


@pytest.fixture(autouse=True)
def same_examples() -> Iterator[None]:
    """The same examples in each run: whether a property can fail is not a matter of luck."""
    settings.load_profile("mutation")
    yield
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.mark.parametrize("kernel", wrong_kernels(), ids=lambda kernel: kernel.__name__)
def test_a_wrong_kernel_fails(kernel: type[Plain]) -> None:
    (meant,) = (found for found in properties() if found.id == kernel.caught_by)
    # Nothing else, which would be a mistake in the mistake; an index is what some get wrong.
    assert isinstance(meant.failure(kernel()), AssertionError | IndexError)


def test_no_property_is_one_that_cannot_fail() -> None:
    shown = {kernel.caught_by.partition("[")[0] for kernel in wrong_kernels()}
    assert {found.name for found in properties()} == shown
    assert len(wrong_kernels()) >= 20


def test_the_documentation_shows_them() -> None:
    page = PAGE.read_text("utf-8")
    assert table() in page and f"Each of these {len(wrong_kernels())} kernels" in page
