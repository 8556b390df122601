"""Every curve can be measured, saved, drawn and shown."""

from benchmarks.curves.benchmark import CURVES
from benchmarks.curves.curve import Series
from tests.meta.trees import ROOT


def test_the_exponent_is_that_of_the_upper_half() -> None:
    line = Series("O(n)", {n: 50.0 + n**2 for n in (1, 2, 4, 800, 1600, 3200)})
    assert abs(line.exponent - 2) < 0.01
    assert abs(Series("O(1)", {10: 3.0, 100: 3.0}).exponent) < 1e-9


def test_the_page_shows_every_curve() -> None:
    text = (ROOT / "docs" / "costs.md").read_text("utf-8")
    for name in CURVES:
        assert f"{{{{ figure cost-{name} }}}}" in text and f"{{{{ curves {name} }}}}" in text
