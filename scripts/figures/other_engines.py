"""Speed of other engines over ours, from compare_*.json: `other-engines`, the README's picture."""

import json
import re
from pathlib import Path
from typing import Any

from scripts.figures.svg import FAINT, INK, Drawing

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


def draw() -> dict[str, Drawing]:
    picture = Drawing(WIDTH, HEIGHT, f"Output tokens a second in {DTYPE}, relative to jax-engine")
    picture.style = _colours()
    picture.box(0, 0, WIDTH, HEIGHT, fill="paper")
    picture.text(WIDTH / 2, 16, picture.title, size=13)
    for i, (name, fill) in enumerate(ENGINES.values()):
        picture.box(LEFT + 110 + 115 * i, 32, 12, 12, fill=fill)
        picture.text(LEFT + 127 + 115 * i, 38, name, anchor="start")
    for share in (0.0, 0.5, 1.0):
        picture.line([(LEFT - 6, _at(share)), (WIDTH - 8, _at(share))], FAINT, width=0.5)
        picture.text(LEFT - 10, _at(share), f"{share:g}", anchor="end", size=10)
    for i, (workload, words) in enumerate(WORKLOADS.items()):
        _group(picture, LEFT + i * GROUP, workload, words)
    return {"other-engines": picture}


def _group(picture: Drawing, left: float, workload: str, words: tuple[str, str]) -> None:
    """A bar for each engine that was measured."""
    speeds = _speeds(workload)
    for i, (engine, speed) in enumerate(speeds.items()):
        top = _at(speed / speeds["ours"])
        picture.box(left + i * BAR, top, BAR - 2, BOTTOM - top, fill=ENGINES[engine][1])
    picture.text(left + BAR / 2, TOP - 8, f"{speeds['ours']:,.0f}", size=10, ink=INK)
    middle = left + 2 * BAR
    for line, text in enumerate((workload, *words)):
        picture.text(middle, BOTTOM + 14 + 15 * line, text, size=11)


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
