"""What cells have printed is used again only while nothing that it depends on has changed."""

import importlib.util
import os
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from scripts import docs_hooks
from tests.meta.trees import ROOT

LONG_AGO = time.time() - 1000


def put(path: Path, text: str) -> None:
    """A file that was there before any cell ran."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    os.utime(path, (LONG_AGO, LONG_AGO))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    put(tmp_path / "scripts" / "__init__.py", "")
    put(
        tmp_path / "scripts" / "cell_outputs.py",
        (ROOT / "scripts" / "cell_outputs.py").read_text("utf-8"),
    )
    put(tmp_path / "book" / "__init__.py", "")
    put(
        tmp_path / "book" / "outer.py", "def f():\n    from book import inner\n    return inner.X\n"
    )
    put(tmp_path / "book" / "inner.py", "X = 1\n")
    put(tmp_path / "data" / "numbers.txt", "5\n")
    return tmp_path


def load(project: Path) -> ModuleType:
    """As a new build would: it remembers nothing."""
    path = project / "scripts" / "cell_outputs.py"
    spec = importlib.util.spec_from_file_location("cell_outputs_of_a_project", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def again(project: Path, *codes: str) -> bool:
    """Is what these cells print in the cache?"""
    return load(project).kept(codes) is not None


CELLS = (
    "import os\nfrom pathlib import Path\nfrom book import outer\nprint(outer.f())",
    "print(Path('data/numbers.txt').read_text().strip(), sorted(os.listdir('data')))",
)


def test_cells_share_a_namespace_and_run_once(project: Path) -> None:
    codes = ("import time\nx = time.time_ns()", "print(x)")
    first = load(project).printed(codes)
    assert first[0] == "" and first[1].strip().isdigit()
    assert load(project).printed(codes) == first
    assert load(project).printed((*codes, "print(x)"))[1] != first[1]  # other cells, run anew


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("book/outer.py", "def f():\n    return 7\n"),
        ("book/inner.py", "X = 2\n"),  # imported by what is imported, when it is called
        ("book/__init__.py", "Y = 1\n"),
        ("data/numbers.txt", "6\n"),
        ("data/more.txt", ""),  # a folder was listed
        ("book/outer/__init__.py", "def f():\n    return 8\n"),  # comes before outer.py
        ("pathlib.py", "from book import outer as Path\n"),  # comes before Python's own
    ],
)
def test_what_has_changed_is_run_anew(project: Path, path: str, text: str) -> None:
    before = load(project).printed(CELLS)
    assert before == ["1\n", "5 ['numbers.txt']\n"] and again(project, *CELLS)
    put(project / path, text)
    assert not again(project, *CELLS)


def test_what_is_gone_is_noticed(project: Path) -> None:
    load(project).printed(CELLS)
    (project / "data" / "numbers.txt").unlink()
    assert not again(project, *CELLS)


def test_what_nothing_depends_on_may_change(project: Path) -> None:
    put(project / "book" / "other.txt", "")
    load(project).printed(CELLS)
    put(project / "book" / "other.txt", "new")
    assert again(project, *CELLS)


def test_variables_count(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(project).printed(CELLS)
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    assert not again(project, *CELLS)


def test_cells_that_start_programs_run_each_time(project: Path) -> None:
    codes = ("import subprocess, sys\nsubprocess.run([sys.executable, '-c', ''])\nprint(1)",)
    assert load(project).printed(codes) == ["1\n"]
    assert not again(project, *codes)


def test_a_file_that_changes_meanwhile_is_not_trusted(project: Path) -> None:
    codes = ("from book import inner\nprint(inner.X)\nopen('book/inner.py', 'a').write('#')",)
    assert load(project).printed(codes) == ["1\n"]
    assert not again(project, *codes)


def test_a_cell_that_fails_ends_the_build(project: Path) -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        load(project).printed(("1 / 0",))
    assert not again(project, "1 / 0")


def test_cells_of_many_pages_run_beside_each_other(project: Path) -> None:
    module = load(project)
    pages = [(f"print({number})",) for number in range(4)]
    module.start(pages)
    assert [module.printed(codes) for codes in pages] == [[f"{n}\n"] for n in range(4)]
    assert all(again(project, *codes) for codes in pages)


def test_a_quick_build_shows_what_was_printed_last_and_says_so(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(project).printed(CELLS)
    monkeypatch.setenv("DOCS_QUICK", "1")
    same = load(project)
    assert same.printed(CELLS)[0] == "1\n" and same.doubt(CELLS) == ""
    put(project / "book" / "inner.py", "X = 2\n")
    quick = load(project)
    quick.start([CELLS])
    assert quick.printed(CELLS) == ["1\n", "5 ['numbers.txt']\n"]  # and not 2
    assert quick.doubt(CELLS) == quick.EARLIER
    unknown = (*CELLS, "print(3)")
    assert quick.printed(unknown) == [quick.NOT_RUN] * 3
    assert quick.doubt(unknown) == quick.NONE_RUN
    monkeypatch.delenv("DOCS_QUICK")
    slow = load(project)
    assert slow.printed(CELLS)[0] == "2\n" and slow.doubt(CELLS) == ""


@pytest.mark.parametrize("doubt", ["", "Quick build: nothing was run."])
def test_the_line_of_a_quick_build_stands_below_the_title(doubt: str) -> None:
    page = docs_hooks._with_doubt("# A title\n\nText.\n\n```sh\n# not a title\n```\n", doubt)
    line = f'\n<p class="quick-build">{doubt}</p>\n' if doubt else ""
    assert page == f"# A title\n{line}\nText.\n\n```sh\n# not a title\n```\n"
