"""Every ```python block of the README and the docs runs: documentation that cannot rot.

The blocks of a page run in order in one namespace, as a reader would type them. A page that makes
an `LLM` is skipped where the SmolLM2 weights cannot be had. Blocks included from a tested file
(`--8<--`) are checked to name a section that exists.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.meta.trees import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INCLUDE = re.compile(r'--8<-- "([^":]+)(?::([^":]+))?"')


def _blocks(page: Path) -> list[str]:
    return [block for block in BLOCK.findall(page.read_text("utf-8")) if "--8<--" not in block]


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if _blocks(p)], ids=lambda p: p.name)
def test_python_blocks_run(page: Path, request: pytest.FixtureRequest) -> None:
    blocks = _blocks(page)
    if any("LLM(" in block for block in blocks):
        request.getfixturevalue("smollm2_path")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks:
        if "serve_pipe(" in block:  # a program of its own, which answers its standard input
            program = [sys.executable, "-c", block]
            subprocess.run(program, stdin=subprocess.DEVNULL, check=True, cwd=ROOT)
            continue
        exec(compile(block, f"{page.name}: {block.splitlines()[0]}", "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_included_files_and_sections_exist(page: Path) -> None:
    for name, section in INCLUDE.findall(page.read_text("utf-8")):
        text = (ROOT / name).read_text("utf-8")
        if section:
            assert f"--8<-- [start:{section}]" in text, f"{page.name} includes {name}:{section}"
            assert f"--8<-- [end:{section}]" in text, f"{page.name} includes {name}:{section}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_between_files_hold(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
