"""Code and figures that pages take from elsewhere: they must be there, and be the present ones."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.tables import with_results
from scripts.figures.__main__ import all_figures
from tests.meta.trees import ROOT


def _hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "scripts" / "docs_hooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda p: p.name)
def test_pages_build(page: Path) -> None:
    built = _hooks().on_page_markdown(page.read_text("utf-8"))
    assert not re.search(r"^\{\{ \w+.* \}\}$", built, re.MULTILINE)


def test_an_unknown_directive_is_an_error() -> None:
    with pytest.raises(LookupError, match="known are source, figure"):
        _hooks().on_page_markdown("{{ figures block-table }}")


def test_outputs_are_what_the_blocks_print() -> None:
    page = "```python\nx = 2\n```\n\n```python\nprint(x + 1)\n```\n{{ output }}\nend"
    assert '```text title="prints"\n3\n```\nend' in _hooks().with_outputs(page)
    with pytest.raises(ValueError, match="no Python block"):
        _hooks().with_outputs("text\n{{ output }}")
    with pytest.raises(ValueError, match="nothing is printed"):
        _hooks().with_outputs("```python\nx = 2\n```\n{{ output }}")


def test_figures_are_what_the_scripts_draw() -> None:
    """After a change: `python -m scripts.figures`."""
    drawn = {name: drawing.svg() for name, drawing in all_figures().items()}
    folder = ROOT / "docs" / "figures"
    assert {path.stem: path.read_text("utf-8") for path in folder.glob("*.svg")} == drawn


def test_a_missing_definition_is_an_error() -> None:
    with pytest.raises(LookupError, match=r"defines no BlockManager\.teleport"):
        _hooks().source_of("reference/blocks.py", "BlockManager.teleport")


def test_readme_shows_the_present_results() -> None:
    """After a benchmark: `python -m benchmarks.tables`."""
    readme = (ROOT / "README.md").read_text("utf-8")
    assert readme == with_results(readme)
    assert all(f"<!-- {name}:end -->" in readme for name in ("measured", "examples"))
