"""Every curve can be measured, saved, drawn and shown."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.curves.__main__ import CURVES
from benchmarks.curves.curve import Series
from benchmarks.curves.page import table
from scripts.figures.costs import draw_costs
from tests.meta.trees import ROOT


def test_the_exponent_is_that_of_the_upper_half() -> None:
    line = Series("O(n)", {n: 50.0 + n**2 for n in (1, 2, 4, 800, 1600, 3200)})
    assert abs(line.exponent - 2) < 0.01
    assert abs(Series("O(1)", {10: 3.0, 100: 3.0}).exponent) < 1e-9


@pytest.mark.slow
def test_every_curve_is_measured_in_miniature(tmp_path: Path) -> None:
    output = tmp_path / "curves.json"
    command = [sys.executable, "-m", "benchmarks.curves", "--smoke", "--save", "--output"]
    done = subprocess.run([*command, str(output)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(output.read_text("utf-8"))["result"]
    assert set(found) == set(CURVES)
    for curve in found.values():
        assert all(len(line["points"]) >= 2 for line in curve["series"].values())
        assert draw_costs(curve).svg().count("<circle") >= 2 and "| expected |" in table(curve)


def test_the_page_shows_every_curve() -> None:
    text = (ROOT / "docs" / "costs.md").read_text("utf-8")
    for name in CURVES:
        assert f"{{{{ figure cost-{name} }}}}" in text and f"{{{{ curves {name} }}}}" in text
