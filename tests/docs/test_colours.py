"""Colours of requests and of text can be told from what is behind them, in both schemes."""

import re

import pytest

from tests.meta.trees import ROOT

STYLES = "".join(
    (ROOT / "docs" / "stylesheets" / f"{name}.css").read_text("utf-8")
    for name in ("look", "figures", "replay")
)
REQUESTS = "abcdef"
SHADE = 0.66  # the most that replay_colours.js mixes in for a request's further sequences


def colours(scheme: str) -> dict[str, str]:
    """Of the variables of a scheme: "#rrggbb" by name."""
    found: dict[str, str] = {}
    for selectors, body in re.findall(r"([^{}]+)\{([^{}]*)\}", STYLES):
        if f'[data-md-color-scheme="{scheme}"]' in selectors:
            found |= dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", body))
    return found


def channels(colour: str) -> list[float]:
    return [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]


def luminance(rgb: list[float]) -> float:
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in rgb]
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
    assert len({colours(scheme)[f"figure-{name}"] for name in REQUESTS}) == len(REQUESTS)


@pytest.mark.parametrize("scheme", ["default", "slate"])
@pytest.mark.parametrize(
    ("text", "behind"),
    [
        ("md-default-fg-color", "md-default-bg-color"),
        ("md-default-fg-color--light", "md-default-bg-color"),
        ("md-typeset-a-color", "md-default-bg-color"),
        ("md-typeset-a-color", "look-tint"),
        ("md-code-fg-color", "md-code-bg-color"),
        ("md-primary-bg-color", "md-primary-fg-color"),
        ("md-primary-bg-color", "md-primary-fg-color--light"),
        ("figure-ink", "figure-paper"),
        ("figure-ink", "figure-free"),
    ],
)
def test_text_can_be_read(scheme: str, text: str, behind: str) -> None:
    known = colours(scheme)
    assert contrast(channels(known[text]), channels(known[behind])) >= 4.5
