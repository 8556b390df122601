"""What is committed: no paths of one machine, no registry addresses, no heavy or endless files."""

import re

from tests.meta.trees import ROOT, tracked_files

MAX_LINES = 600
MAX_BYTES = 1_000_000
# Spelt in pieces, so that this file is clean itself.
MACHINE_PATHS = re.compile("|".join(["/wor" + "k/", "/ro" + "ot/", "/ho" + "me/[a-z]"]))
REGISTRIES = re.compile("|".join([r"pypi\." + "org", r"python" + r"hosted\.org", "index" + "-url"]))


def _texts() -> list[tuple[str, str]]:
    found = []
    for path in tracked_files():
        try:
            found.append((str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue
    return found


def test_no_path_of_a_machine() -> None:
    assert [name for name, text in _texts() if MACHINE_PATHS.search(text)] == []


def test_no_registry_address() -> None:
    assert [name for name, text in _texts() if REGISTRIES.search(text)] == []


def test_source_files_are_about_one_thing() -> None:
    lines = {name: text.count("\n") for name, text in _texts() if name.endswith(".py")}
    assert {n: count for n, count in lines.items() if count > MAX_LINES} == {}


def test_docstrings_begin_with_their_subject() -> None:
    """A docstring or an argument that begins with "Of" leaves out what it is about."""
    code = [(name, text) for name, text in _texts() if name.endswith(".py")]
    headless = re.compile(r'^\s*"""Of\b|^ {8,}[a-z_, ]+: of\b', re.M | re.I)
    assert [(name, found[0]) for name, text in code if (found := headless.search(text))] == []


def test_no_heavy_file() -> None:
    heavy = [str(p.relative_to(ROOT)) for p in tracked_files() if p.stat().st_size > MAX_BYTES]
    assert heavy == []


def test_constraints_are_plain_versions() -> None:
    plain = re.compile(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.+-]+")
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if not plain.fullmatch(line)] == []
