"""`pytest --conformance KIND=module:name`: each property of the suite is a test.

The plugin's entry point is of the distribution `paged-conformance`; in a checkout it is
`-p paged_conformance.pytest_plugin`. The tests come after those of files; `-k conformance` chooses
them alone, and `-k NAME` one property.
"""

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance", "properties of other people's engines")
    group.addoption(
        "--conformance",
        action="append",
        default=[],
        metavar="KIND=TARGET",
        help="run the suite of this kind on module:name, or on the URL of a server; several times",
    )
    group.addoption(
        "--conformance-seconds",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="for all properties of a target together (60)",
    )
    group.addoption("--conformance-seed", type=int, default=0, help="draws other examples (0)")
    group.addoption(
        "--conformance-known", type=Path, metavar="FILE", help="lines `property  # why`"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Adds the properties, before others choose among the tests."""
    for number, text in enumerate(config.getoption("--conformance")):
        from paged_conformance.pytest_items import items_of

        items.extend(items_of(session, text, number))
