"""Cells of the tutorial: each says what it needs, and gives alone what it gives in its page."""

import contextlib
import html
import io
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from exercises.allocator import Numbers
from exercises.variants import draw, say
from playground.in_browser import run_code
from scripts import oracle_in_site, pyodide_core
from scripts.cells_in_pages import cells, lacks, outside_of
from scripts.exercise_cell import exercise, parts
from scripts.exercise_table import order
from scripts.interactive import variant
from tests.docs.test_playground_page import Quiet
from tests.docs.test_replay import CHROMIUM, needs_chromium
from tests.meta.trees import ROOT
from tests.support.chromium import Page, chromium

PAGES = sorted((ROOT / "docs" / "tutorial").glob("*.md"))
RUN = {path.stem: found for path in PAGES if (found := cells(path.read_text("utf-8")))}
IN_PAGE = [name for name in order() if not lacks(outside_of(f"exercises.{name}"))]


@pytest.mark.parametrize(
    "page", [name for name, found in RUN.items() if any(not one["lacks"] for one in found)]
)
def test_a_cell_prints_alone_what_it_prints_in_its_page(page: str) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for cell in RUN[page]:
        if cell["lacks"]:
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(cell["code"], page, "exec"), namespace)
        alone = json.loads(run_code(cell["code"], cell["before"]))
        assert alone == {"printed": printed.getvalue(), "error": None}, cell["code"]


IMPORTS = re.compile(r"^(?:from|import) (tests[\w.]*)", re.MULTILINE)


@pytest.mark.slow
def test_pages_are_built_where_no_test_package_is_installed() -> None:
    """Cells import those of the project's tests that need neither pytest nor Hypothesis."""
    modules = sorted({name for path in PAGES for name in IMPORTS.findall(path.read_text("utf-8"))})
    assert modules
    code = "import sys\nsys.modules['pytest'] = sys.modules['hypothesis'] = None\n"
    code += "".join(f"import {name}\n" for name in modules)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]


def test_what_a_cell_needs() -> None:
    def needs(*codes: str) -> list[tuple[str, str]]:
        blocks = "\n\n".join(f"```python\n{code}\n```" for code in codes)
        return [(one["before"], one["lacks"]) for one in cells(blocks)]

    assert needs("a = 1", "b = 2", "print(a)") == [("", ""), ("", ""), ("a = 1", "")]
    changed = needs("a = []", "a.append(1)", "b = 2", "print(a)")
    assert changed[-1] == ("a = []\na.append(1)", "")
    assert needs("import numpy as np", "x = np.ones(3)")[1] == ("import numpy as np", "")
    assert needs("from reference.blocks import BlockManager")[0][1] == ""
    for code, numpy in (
        ("import numpy as np", True),
        ("from reference.attention import softmax", True),
        ("from reference.blocks import BlockManager", False),
        ("print(1)", False),
    ):
        assert [one["numpy"] for one in cells(f"```python\n{code}\n```")] == [numpy]
    assert needs("import subprocess")[0][1] == "Python's subprocess"
    assert needs("from jax_engine import LLM")[0][1] == "jax_engine"
    assert needs("def f():\n    return g()", "def g():\n    return 2", "print(f())")[-1][0]


def solution(name: str) -> str:
    """Its code, over what is given in the same text."""
    text = (ROOT / "exercises" / "solutions" / f"{name}.py").read_text("utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("from exercises")]
    return "\n".join(lines).replace("exercise.", "")


@pytest.mark.parametrize("name", IN_PAGE)
def test_an_exercise_is_its_file_in_three_parts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    part = parts(name)
    for arguments, first in (([], "Not"), (["--seed", "7"], "Variant 7: ")):
        monkeypatch.setattr(sys, "argv", ["", *arguments])
        unsolved = json.loads(run_code(f"{part['code']}\n\n{part['behind']}", part["before"]))
        assert unsolved["error"] is None and unsolved["printed"].startswith(first)
    code = f"{part['code']}\n{solution(name)}\ncheck(ANSWER)"
    behind = part["behind"].partition('if __name__ == "__main__"')[0]
    solved = json.loads(run_code(f"{behind}\n{code}", part["before"] + part["code"]))
    assert solved == {"printed": "Right.\n", "error": None}
    with pytest.raises(LookupError, match=r"exercises/checking\.py has no line"):
        parts("checking")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A page with a cell and an exercise."""
    try:
        for package in (pyodide_core.PYODIDE, pyodide_core.NUMPY):
            pyodide_core.fetched(package)
    except pyodide_core.NoCore as reason:
        pytest.skip(str(reason))
    folder = tmp_path_factory.mktemp("cells") / "site"
    (folder / "javascripts").mkdir(parents=True)
    for path in (ROOT / "docs" / "javascripts").iterdir():
        (folder / "javascripts" / path.name).write_bytes(path.read_bytes())
    found = cells("```python\nwords = ['To', 'be']\n```\n\n```python\nprint(len(words))\n```\n")
    blocks = "".join(
        f'<div class="highlight"><pre><code>{html.escape(one["code"])}\n</code></pre></div>'
        for one in found
    )
    names = ("elements", "oracle", "editor", "cells", "exercises")
    scripts = "".join(f'<script src="../javascripts/{name}.js"></script>' for name in names)
    data = f'<script type="application/json" class="cells">{json.dumps(found)}</script>'
    (folder / "page").mkdir()
    (folder / "page" / "index.html").write_text(
        '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">'
        f'<div class="md-content">{blocks}{variant()}{exercise("allocator")}</div>{data}{scripts}',
        encoding="utf-8",
    )
    oracle_in_site.on_post_build({"site_dir": str(folder)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/page/"
    server.shutdown()


def ran(page: Page, editor: str, text: str | None = None) -> str:
    """What comes out of an editor when its text, or another one, is run."""
    where = f"document.querySelector({json.dumps(editor)})"
    if text is not None:
        page.run(f"{where}.querySelector('textarea').value = {json.dumps(text)}")
        page.run(f"{where}.querySelector('textarea').dispatchEvent(new Event('input'))")
    page.run(f"{where}.querySelector('.editor-run').click()")
    page.until(f"{where}.querySelector('.editor-run').ariaDisabled === 'false'")
    return str(page.run(f"{where}.querySelector('.editor-out').textContent"))


@pytest.mark.slow
@needs_chromium
def test_a_reader_edits_a_cell_and_does_an_exercise(tmp_path: Path, site: str) -> None:
    with chromium(CHROMIUM, tmp_path) as page:
        page.open(site)
        page.until("document.querySelectorAll('.cell-bar').length === 2")
        assert "Copy with the cell above" in page.run(
            "document.querySelectorAll('.cell-bar')[1].textContent"
        )
        page.run("document.querySelectorAll('.cell-edit')[1].click()")
        assert ran(page, ".cell-bar .editor") == "2"
        assert ran(page, ".cell-bar .editor", "print(words[2])") == (
            "IndexError: list index out of range (line 1)"
        )
        code = "import numpy\nprint(numpy.arange(3))"  # in a cell that had no need of it
        assert ran(page, ".cell-bar .editor", code) == "[0 1 2]"
        assert "Not written yet: `__init__`" in ran(page, ".exercise")
        failed = "document.querySelector('.exercise .editor-out').classList.contains('is-failed')"
        assert page.run(failed)
        page.run("window.editor.seconds = 1")
        said = ran(page, ".exercise", "while True:\n    pass")
        assert said == "stopped after 1 seconds: it may never end"
        page.run("window.editor.seconds = 20")
        code = parts("allocator")["code"] + solution("allocator")
        assert ran(page, ".exercise", code) == "Right." and not page.run(failed)
        page.run("(() => { const one = document.querySelector('.exercise-variant input');"
                 "one.value = 7; one.dispatchEvent(new Event('input')); })()")  # fmt: skip
        lines = ran(page, ".exercise").splitlines()
        assert lines == [f"Variant 7: {say(draw(Numbers, 7))}.", "Right."]
        assert page.run("window.location.search") == "?seed=7"
        code_of_three = code.replace("range(num_blocks)", "range(3)")
        assert "Not yet: num_free of a new pool" in ran(page, ".exercise", code_of_three)
        ran(page, ".exercise", code)
        page.run("document.querySelector('.cell-bar textarea').value = 'while True: pass'")
        page.run("document.querySelector('.cell-bar .editor-run').click()")
        page.until("!document.querySelector('.cell-bar .editor-stop').hidden")
        page.run("document.querySelector('.cell-bar .editor-stop').click()")
        page.until("document.querySelector('.cell-bar .editor-out').textContent === 'Stopped.'")
        page.open("about:blank")
        page.open(f"{site}?seed=12")
        page.until("!!document.querySelector('.exercise textarea')")
        assert page.run("document.querySelector('.exercise-variant input').value") == "12"
        assert page.run("document.querySelector('.exercise textarea').value") == code
        assert page.problems == []


NUMBER = re.compile(r"\d[\d.]*(e[-+]\d+)?")
WITH_NUMPY = [
    name for name, found in RUN.items() if any(one["numpy"] and not one["lacks"] for one in found)
]


@pytest.mark.slow
@needs_chromium
def test_cells_with_numpy_print_in_the_page_what_they_print_here(tmp_path: Path, site: str) -> None:
    """NumPy is compiled there for another machine, and is another version."""
    with chromium(CHROMIUM, tmp_path) as page:
        page.open(site)
        page.until("!!window.oracle?.supported")
        differ = []
        for name in WITH_NUMPY:
            for cell in RUN[name]:
                if cell["lacks"] or not cell["numpy"]:
                    continue
                asked = json.dumps({key: cell[key] for key in ("code", "before", "numpy")})
                there = page.run(f"window.oracle.run({asked}, 300)")
                here = json.loads(run_code(cell["code"], cell["before"]))
                if name == "equal-bits":  # its point: another machine has other bits
                    there, here = (NUMBER.sub("N", json.dumps(one)) for one in (there, here))
                if there != here:
                    differ.append((name, cell["code"], there, here))
        assert differ == []
        for name in ("online_softmax", "grouped_product"):
            part = parts(name)
            behind = part["behind"].partition('if __name__ == "__main__"')[0]
            code = f"{behind}\n{part['code']}\n{solution(name)}\ncheck(ANSWER)"
            before = part["before"] + part["code"]
            asked = json.dumps({"code": code, "before": before, "numpy": part["numpy"]})
            assert page.run(f"window.oracle.run({asked}, 60)")["printed"] == "Right.\n"
        assert page.problems == []
