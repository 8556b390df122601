"""Stand-ins for what a foreign project imports: decorators leave alone, base classes are empty."""

import sys
from collections.abc import Iterator

import pytest

from paged_conformance.adapters import stand_ins


@pytest.fixture(autouse=True)
def stand_in() -> Iterator[None]:
    before = sys.meta_path.copy()
    stand_ins.install(["absent"], [])
    yield
    sys.meta_path[:] = before
    for name in [name for name in sys.modules if name.split(".")[0] == "absent"]:
        del sys.modules[name]


def test_what_is_decorated_stays_what_it_is() -> None:
    """A plan whose class became nothing had no rows: all that it could break held."""
    from absent.linter import include, registered  # type: ignore[import-not-found]

    @include
    class Plan:
        rows = 3

    @registered("plans", version=1)
    class Other:
        rows = 4

    @include
    def three() -> int:
        return 3

    assert (Plan.rows, Other.rows, three()) == (3, 4, 3)
    assert isinstance(Plan(), Plan)


def test_a_base_class_takes_anything() -> None:
    from absent.models import Base

    class Mine(Base):
        def __init__(self, kind: type) -> None:
            super().__init__(kind, 5, x=7)
            self.kind = kind

    assert Mine(int).kind is int
    assert not Base(5) and list(Base(x=int)) == []
