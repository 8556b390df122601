"""The replay page in a real browser: does it show what the traces say?

Chromium opens a page made of the same parts as docs/tutorial/see-it.md, from a file, and
replay_check.js uses it: every scenario, every moment, forwards, backwards, by scrubbing and played.
"""

import html
import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from playground.trace_scenarios import SCENARIOS
from tests.meta.trees import ROOT
from tests.support.patience import HANG_S

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"]
FLAGS += ["--allow-file-access-from-files"]  # so that a page can leave its report in its parent
SCRIPTS = (
    "elements.js", "replay_colours.js", "replay_parts.js", "replay_lines.js", "replay_drawing.js",
    "replay.js",
)  # fmt: skip
"""Files of docs/javascripts/, in the order of mkdocs.yml."""
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed")


def replay(*names: str) -> str:
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "scripts" / "docs_hooks.py")
    assert spec is not None and spec.loader is not None
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    return str(hooks.replay(*names))


def page(folder: Path, scheme: str) -> Path:
    """What MkDocs makes of the page, less the theme."""
    docs = ROOT / "docs"
    styles = "".join(
        (docs / "stylesheets" / name).read_text("utf-8") for name in ("figures.css", "replay.css")
    )
    check = (ROOT / "tests" / "docs" / "replay_check.js").read_text("utf-8")
    scripts = "".join(
        f"<script>{(docs / 'javascripts' / name).read_text('utf-8')}</script>" for name in SCRIPTS
    )
    path = folder / "replay.html"
    path.write_text(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>replay</title>'
        f'<meta name="viewport" content="width=device-width"><style>{styles}'
        f"html {{ font-size: 125%; }} body {{ margin: 16px; }}</style>"
        f'<body data-md-color-scheme="{scheme}"><script>{check}</script>{replay()}'
        f"{scripts}</body></html>",
        encoding="utf-8",
    )
    return path


def browse(path: Path, folder: Path, width: int, *flags: str) -> dict[str, Any]:
    """The report that replay_check.js leaves in the page around it."""
    frame = folder / "frame.html"  # a window cannot be as narrow as a phone, a frame can
    size = f"width: {width}px; height: 800px; border: 0"
    frame.write_text(f'<!doctype html><iframe src="{path.name}" style="{size}"></iframe>')
    command = [CHROMIUM, *FLAGS, *flags, f"--user-data-dir={folder / 'profile'}"]
    command += ["--window-size=1400,900", "--virtual-time-budget=120000", "--dump-dom"]
    done = subprocess.run(
        [*command, frame.as_uri()], capture_output=True, text=True, timeout=HANG_S, check=False
    )
    found = re.search(r'<pre id="report">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, f"no report; Chromium said: {done.stderr[-2000:]}"
    report: dict[str, Any] = json.loads(html.unescape(found[1]))
    return report


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize(
    ("width", "scheme", "flags"),
    [
        pytest.param(1200, "default", (), id="desktop"),
        pytest.param(360, "slate", ("--force-prefers-reduced-motion",), id="phone"),
    ],
)
def test_every_moment_is_shown_as_it_was(
    tmp_path: Path, width: int, scheme: str, flags: tuple[str, ...]
) -> None:
    report = browse(page(tmp_path, scheme), tmp_path, width, *flags)
    assert report["errors"] == []
    traces = ROOT / "docs" / "traces"
    assert report["scenarios"] == {
        name: len(json.loads((traces / f"{name}.json").read_text("utf-8"))["moments"])
        for name in SCENARIOS
    }
    assert report["width"] == width and report["calm"] == bool(flags)


@pytest.mark.slow
@needs_chromium
def test_the_check_notices_a_page_that_is_wrong(tmp_path: Path) -> None:
    path = page(tmp_path, "default")
    text = path.read_text("utf-8")
    path.write_text(text.replace("`×${refs}`)", "`×${refs + (block === 7)}`)"), encoding="utf-8")
    errors = browse(path, tmp_path, 1200)["errors"]
    assert any("gpu counts" in error for error in errors)


def test_a_page_can_have_some_scenarios_only() -> None:
    part = replay("hang", "prefix-hit")
    assert re.findall('data-trace="([^"]*)"', part) == ["hang", "prefix-hit"]
    assert "data-links" not in part and "data-links" in replay()


def test_nothing_is_fetched_from_elsewhere() -> None:
    """No address but that of the SVG namespace, in scripts and styles alike."""
    scripts = [f"javascripts/{name}" for name in SCRIPTS]
    for name in (*scripts, "stylesheets/replay.css", "stylesheets/figures.css"):
        text = (ROOT / "docs" / name).read_text("utf-8")
        assert set(re.findall(r"https?://[^\s\"')]+", text)) <= {"http://www.w3.org/2000/svg"}
