"""Speed of other engines over ours, from compare_*.json: `other-engines`, the README's picture.

Its narrow drawing has the workloads in two rows.
"""

import json
import re
from pathlib import Path
from typing import Any

from scripts.figures.svg import FAINT, INK, PHONE, Drawing

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
COLOURS = ROOT / "docs" / "stylesheets" / "figures.css"
DTYPE = "bfloat16"
ENGINES = {
    "ours": ("jax-engine", "a"),
    "vllm": ("vLLM", "b"),
    "llama-cpp": ("llama.cpp", "c"),
    "transformers": ("transformers", "d"),
}
WORKLOADS = {
    "W1": ("32 requests", "at once"),
    "W2": ("one request", ""),
    "W3": ("ShareGPT,", "at once"),
    "W4": ("ShareGPT,", "arriving"),
    "W5": ("a shared", "prefix"),
    "W6": ("a prompt of", "4,096"),
    "W7": ("4 samples", "each"),
}
WIDTH, HEIGHT, TOP, BOTTOM = 640.0, 268.0, 66.0, 200.0
LEFT, GROUP, BAR = 36.0, 86.0, 17.0
TITLE = f"Output tokens a second in {DTYPE}, relative to jax-engine"
ROW, EACH = 212.0, 80.0  # of the narrow one: the height of a row, the width of a workload


def draw() -> dict[str, Drawing]:
    picture = Drawing(WIDTH, HEIGHT, TITLE)
    picture.style = _colours()
    picture.box(0, 0, WIDTH, HEIGHT, fill="paper")
    picture.text(WIDTH / 2, 16, picture.title, size=13)
    for i in range(len(ENGINES)):
        _legend(picture, LEFT + 110 + 115 * i, 32, i)
    _axis(picture, 0, WIDTH - 8, 10)
    for i, workload in enumerate(WORKLOADS):
        _group(picture, LEFT + i * GROUP, 0, workload, (10, 11))
    return {"other-engines": picture, "other-engines-narrow": _narrow()}


def _narrow() -> Drawing:
    """For a phone: four workloads, and three below them."""
    picture = Drawing(PHONE, HEIGHT + ROW - 10, TITLE)
    for i in range(len(ENGINES)):
        _legend(picture, 40 + 150 * (i % 2), 4 + 20 * (i // 2), i)
    for i, workload in enumerate(WORKLOADS):
        _group(picture, LEFT + i % 4 * EACH, i // 4 * ROW, workload, (12, 12))
    for y in (0, ROW):
        _axis(picture, y, PHONE - 2, 12)
    return picture


def _legend(picture: Drawing, x: float, y: float, number: int) -> None:
    name, fill = list(ENGINES.values())[number]
    picture.box(x, y, 12, 12, fill=fill)
    picture.text(x + 17, y + 6, name, anchor="start")


def _axis(picture: Drawing, y: float, right: float, size: float) -> None:
    for share in (0.0, 0.5, 1.0):
        picture.line([(LEFT - 6, y + _at(share)), (right, y + _at(share))], FAINT, width=0.5)
        picture.text(LEFT - 10, y + _at(share), f"{share:g}", anchor="end", size=size)


def _group(
    picture: Drawing, left: float, y: float, workload: str, sizes: tuple[float, float]
) -> None:
    """A bar for each engine that was measured, with text of these sizes above and below."""
    speeds = _speeds(workload)
    for i, (engine, speed) in enumerate(speeds.items()):
        top = _at(speed / speeds["ours"])
        picture.box(left + i * BAR, y + top, BAR - 2, BOTTOM - top, fill=ENGINES[engine][1])
    above, below = sizes
    picture.text(left + BAR / 2, y + TOP - 8, f"{speeds['ours']:,.0f}", size=above, ink=INK)
    for line, text in enumerate((workload, *WORKLOADS[workload])):
        picture.text(left + 2 * BAR, y + BOTTOM + 14 + 15 * line, text, size=below)


def _speeds(workload: str) -> dict[str, float]:
    """Output tokens a second by engine, ours first; what was not measured is left out."""
    path = RESULTS / f"compare_{workload}_{DTYPE}.json"
    peers: dict[str, Any] = json.loads(path.read_text("utf-8"))["result"]["peers"]
    found = {name: peers.get(name, {}).get("output_tokens_per_s") for name in ENGINES}
    return {name: speed for name, speed in found.items() if speed is not None}


def _at(share: float) -> float:
    return BOTTOM - share * (BOTTOM - TOP)


def _colours() -> str:
    """The colours for a page that has not our style sheet, in light and in dark mode."""
    blocks = re.findall(r"{([^{}]*--figure-[^{}]*)}", COLOURS.read_text("utf-8"))
    light, dark = ("".join(re.findall(r"--[\w-]+: #\w+;", block)) for block in blocks[:2])
    return f"svg {{ {light} }} @media (prefers-color-scheme: dark) {{ svg {{ {dark} }} }}"
