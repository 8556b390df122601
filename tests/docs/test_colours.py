"""Colours of requests and of text can be told from what is behind them, in both schemes."""

import re
from itertools import combinations
from math import dist, hypot

import pytest

from tests.meta.trees import ROOT

STYLES = "".join(
    (ROOT / "docs" / "stylesheets" / f"{name}.css").read_text("utf-8")
    for name in ("look", "figures", "replay")
)
REQUESTS = "abcdef"
APART = 0.08  # in OKLab; below 0.03 two patches side by side look alike
# Linear RGB as it is seen without red, green or blue cones (Machado et al., 2009)
BLINDNESS = {
    "none": [(1, 0, 0), (0, 1, 0), (0, 0, 1)],
    "red": [(0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)],
    "green": [(0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)],
    "blue": [(1.256, -0.077, -0.179), (-0.078, 0.931, 0.148), (0.005, 0.691, 0.304)],
}
SHADE = 0.66  # the most that replay_colours.js mixes in for a request's further sequences


def colours(scheme: str) -> dict[str, str]:
    """The colours of a scheme, "#rrggbb" by the variable's name."""
    found: dict[str, str] = {}
    for selectors, body in re.findall(r"([^{}]+)\{([^{}]*)\}", STYLES):
        if f'[data-md-color-scheme="{scheme}"]' in selectors:
            found |= dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", body))
    return found


def channels(colour: str) -> list[float]:
    return [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]


def linear_rgb(rgb: list[float]) -> list[float]:
    return [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in rgb]


def times(matrix: list[tuple[float, float, float]], vector: list[float]) -> list[float]:
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def seen(colour: str, blindness: str) -> list[float]:
    """Where a colour is in OKLab, in which equal distances look equal."""
    rgb = [min(1, max(0, x)) for x in times(BLINDNESS[blindness], linear_rgb(channels(colour)))]
    cones = [(0.4122, 0.5363, 0.0514), (0.2119, 0.6807, 0.1074), (0.0883, 0.2817, 0.6300)]
    lab = [(0.2105, 0.7936, -0.0041), (1.9780, -2.4286, 0.4506), (0.0259, 0.7828, -0.8087)]
    return times(lab, [max(0, x) ** (1 / 3) for x in times(cones, rgb)])


def luminance(rgb: list[float]) -> float:
    linear = linear_rgb(rgb)
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: list[float], b: list[float]) -> float:
    """WCAG's ratio."""
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["default", "slate"])
def test_words_on_a_request_s_colour_can_be_read(scheme: str) -> None:
    known = {name: channels(value) for name, value in colours(scheme).items()}
    ink, shade = known["figure-ink"], known["figure-shade"]
    for name in REQUESTS:
        paint = known[f"figure-{name}"]
        fainter = [(1 - SHADE) * x + SHADE * y for x, y in zip(paint, shade, strict=True)]
        assert contrast(ink, paint) >= 4.5, name
        assert contrast(ink, fainter) >= 4.5, f"{name}'s last shade"


@pytest.mark.parametrize("scheme", ["default", "slate"])
def test_words_in_a_block_can_be_read(scheme: str) -> None:
    """They lie on the block's colour, a part of which is mixed with another one."""
    known = {name: channels(value) for name, value in colours(scheme).items()}
    rule = r"\.replay-block \.is-computed \{[^}]* var\(--([\w-]+)\) (\d+)%, transparent\)"
    found = re.search(rule, STYLES)
    assert found is not None
    part = int(found[2]) / 100
    for name in REQUESTS:
        pairs = zip(known[found[1]], known[f"figure-{name}"], strict=True)
        cell = [part * mixed + (1 - part) * paint for mixed, paint in pairs]
        assert contrast(known["figure-ink"], cell) >= 4.5, name


@pytest.mark.parametrize("blindness", BLINDNESS)
@pytest.mark.parametrize("scheme", ["default", "slate"])
def test_requests_can_be_told_apart(scheme: str, blindness: str) -> None:
    known = {name: seen(colours(scheme)[f"figure-{name}"], blindness) for name in REQUESTS}
    close = {a + b for a, b in combinations(REQUESTS, 2) if dist(known[a], known[b]) < APART}
    assert close == set()


def test_requests_in_the_dark_are_no_browns_and_navies() -> None:
    """Each has a hue of its own that can be named, and no two are near each other."""
    known = {name: seen(colours("slate")[f"figure-{name}"], "none") for name in REQUESTS}
    pale = {name for name, (_, a, b) in known.items() if hypot(a, b) < 0.07}
    assert pale == set()
    assert min(dist(known[a], known[b]) for a, b in combinations(REQUESTS, 2)) > 0.15
    paper = channels(colours("slate")["figure-paper"])
    for name in REQUESTS:
        assert contrast(channels(colours("slate")[f"figure-{name}"]), paper) >= 1.5, name


@pytest.mark.parametrize("scheme", ["default", "slate"])
def test_bars_of_requests_can_be_seen(scheme: str) -> None:
    """Bars beside text have no edge: they are darker in the light, and lighter in the dark."""
    known = {name: channels(value) for name, value in colours(scheme).items()}
    rule = rf'\[data-md-color-scheme="{scheme}"\] \{{[^}}]*--edge: (\d+)%'
    part = int(re.findall(rule, STYLES)[0]) / 100
    for name in REQUESTS:
        pairs = zip(known[f"figure-{name}"], known["figure-ink"], strict=True)
        bar = [part * paint + (1 - part) * ink for paint, ink in pairs]
        for behind in ("figure-paper", "md-default-bg-color"):
            assert contrast(bar, known[behind]) >= 3, (name, behind)


@pytest.mark.parametrize("scheme", ["default", "slate"])
@pytest.mark.parametrize("behind", ["figure-paper", "figure-free", "md-default-bg-color"])
def test_edges_and_lines_can_be_seen(scheme: str, behind: str) -> None:
    """A request's colour may be pale: its edge says where it ends."""
    known = {name: channels(value) for name, value in colours(scheme).items()}
    is_text = behind != "figure-free"  # units on axes, which have no shape behind them
    assert contrast(known["figure-faint"], known[behind]) >= (4.5 if is_text else 3)
    for number in range(1, 6):
        assert contrast(known[f"figure-line-{number}"], known[behind]) >= 3, number


@pytest.mark.parametrize("scheme", ["default", "slate"])
@pytest.mark.parametrize(
    ("text", "behind"),
    [
        ("md-default-fg-color", "md-default-bg-color"),
        ("md-default-fg-color--light", "md-default-bg-color"),
        ("md-typeset-a-color", "md-default-bg-color"),
        ("md-typeset-a-color", "look-tint"),
        ("md-accent-fg-color", "look-tint"),  # the icons of questions
        ("md-code-fg-color", "md-code-bg-color"),
        ("md-primary-bg-color", "md-primary-fg-color"),
        ("md-primary-bg-color", "md-primary-fg-color--light"),
        ("figure-ink", "figure-paper"),
        ("figure-ink", "figure-free"),
        ("figure-ink", "figure-alarm"),
    ],
)
def test_text_can_be_read(scheme: str, text: str, behind: str) -> None:
    known = colours(scheme)
    assert contrast(channels(known[text]), channels(known[behind])) >= 4.5


def test_icons_of_questions_are_in_the_palette() -> None:
    """The theme's are of a green that nothing else here has."""
    for mark, what in (("before", "background-color"), ("after", "color")):
        rule = rf"\.question > summary::{mark} {{ {what}: var\(--md-accent-fg-color\); }}"
        assert re.search(rule, STYLES), mark
