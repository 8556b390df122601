"""The page of costs shows the saved curves, and every curve can be measured."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from benchmarks.curves.__main__ import CURVES
from benchmarks.curves.curve import Series
from benchmarks.plot_curves import PAGE, PLOTS, load_curves, plot, with_curves
from tests.meta.trees import ROOT


def test_the_page_shows_the_saved_curves() -> None:
    """After a benchmark: `python -m benchmarks.plot_curves`."""
    page = PAGE.read_text("utf-8")
    assert page == with_curves(page, load_curves())


@pytest.mark.parametrize("name", CURVES)
def test_the_plots_are_those_of_the_saved_curves(name: str) -> None:
    text = (PLOTS / f"{name}.svg").read_text("utf-8")
    assert text == plot(load_curves()["result"][name])
    circles = ElementTree.fromstring(text).findall(".//{http://www.w3.org/2000/svg}circle")
    assert circles and all(0 < float(circle.attrib["cy"]) < 400 for circle in circles)


def test_the_exponent_is_that_of_the_upper_half() -> None:
    line = Series("O(n)", {n: 50.0 + n**2 for n in (1, 2, 4, 800, 1600, 3200)})
    assert abs(line.exponent - 2) < 0.01
    assert abs(Series("O(1)", {10: 3.0, 100: 3.0}).exponent) < 1e-9


def test_every_curve_is_measured_in_miniature(tmp_path: Path) -> None:
    output = tmp_path / "curves.json"
    command = [sys.executable, "-m", "benchmarks.curves", "--smoke", "--save", "--output"]
    done = subprocess.run([*command, str(output)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(output.read_text("utf-8"))["result"]
    assert set(found) == set(CURVES)
    for curve in found.values():
        assert all(len(line["points"]) >= 2 for line in curve["series"].values())
        assert plot(curve).startswith("<svg")
