"""Code and figures that pages take from elsewhere: they must be there, and be the present ones."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.tables import with_headlines
from tests.meta.trees import ROOT


def _hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "scripts" / "docs_hooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda p: p.name)
def test_pages_build(page: Path) -> None:
    built = _hooks().on_page_markdown(page.read_text("utf-8"))
    left = [
        line for line in built.splitlines() if line.startswith("{{")
    ]  # Jinja in code is not ours
    assert left == []


def test_a_missing_definition_is_an_error() -> None:
    with pytest.raises(LookupError, match=r"defines no BlockManager\.teleport"):
        _hooks().source_of("reference/blocks.py", "BlockManager.teleport")


def test_readme_shows_the_present_results() -> None:
    """After a benchmark: `python -m benchmarks.tables`."""
    readme = (ROOT / "README.md").read_text("utf-8")
    assert readme == with_headlines(readme)
