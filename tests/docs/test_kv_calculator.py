"""The KV calculator: its numbers, and that the page computes the same."""

import doctest
import json
from pathlib import Path

import pytest

from scripts import interactive
from scripts.tutorial import kv_sizes
from scripts.tutorial.kv_sizes import BITS, GPUS, MODELS, sizes
from tests.docs.test_replay import CHROMIUM, needs_chromium
from tests.meta.trees import ROOT
from tests.support.chromium import chromium

SETTINGS = [
    (model, gpu, bits, context, limit, batch)
    for model in MODELS
    for gpu in GPUS
    for bits in BITS
    for context in (64, 77, 1000)  # two of which do not fill their last block
    for limit, batch in ((64, 1), (8192, 128), (65536, 9))
]

COMPUTED = """(() => {
  const known = JSON.parse(document.querySelector(".kv-calculator").dataset.known);
  return SETTINGS.map(([model, gpu, bits, context, limit, batch]) => window.kvSizes(
    known, known.models[model], known.gpus[gpu],
    { bits: known.bits[bits], context, limit, batch }));
})()"""
SLID = """(() => {
  const slider = document.querySelector("input[type=range]");
  slider.value = 12.25;
  slider.dispatchEvent(new Event("input"));
})()"""


def test_its_docstring() -> None:
    result = doctest.testmod(kv_sizes)
    assert (result.failed, result.attempted) == (0, 2)


def test_by_hand() -> None:
    found = sizes(MODELS["Llama-3-8B"], 80, kv_bits=16, context=1000, limit=8192, batch=60)
    assert found["token"] == 32 * 2 * 8 * 128 * 2 == 131_072
    assert found["cache"] == 72 * 2**30 - 16_060_000_000
    assert found["slots"] == found["cache"] // (131_072 * 16) * 16
    assert found["sequences"] == found["slots"] // 16 // 63
    assert found["reserved"] == found["cache"] // (131_072 * 8192) == 57
    assert (found["unused_in_blocks"], found["unused_in_reservation"]) == (8, 7192)
    assert found["batch"] == 60 * 63 * 16 * 131_072
    assert (found["running"], found["running_reserved"]) == (60, 57)
    none = sizes(MODELS["Llama-3-70B"], 80, kv_bits=8, context=64, limit=64, batch=1)
    assert (none["sequences"], none["running"]) == (0, 0)


@needs_chromium
@pytest.mark.parametrize("width", [1400, 390])
def test_the_page_computes_the_same(tmp_path: Path, width: int) -> None:
    scripts = "".join(
        f"<script>{(ROOT / 'docs' / 'javascripts' / name).read_text('utf-8')}</script>"
        for name in ("elements.js", "kv_calculator.js")
    )
    style = (ROOT / "docs" / "stylesheets" / "kv_calculator.css").read_text("utf-8")
    page = tmp_path / "calculator.html"
    page.write_text(
        '<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<style>{style}</style>{interactive.kv_calculator()}{scripts}",
        encoding="utf-8",
    )
    with chromium(CHROMIUM, tmp_path) as browser:
        browser.size(width, 900, phone=width < 1000)
        browser.open(page.as_uri())
        browser.until("document.querySelectorAll('.kv-row').length === 7")
        computed = browser.run(COMPUTED.replace("SETTINGS", json.dumps(SETTINGS)))
        wanted = [
            sizes(
                MODELS[model], GPUS[gpu], kv_bits=BITS[bits],
                context=context, limit=limit, batch=batch,
            )
            for model, gpu, bits, context, limit, batch in SETTINGS
        ]  # fmt: skip
        assert computed == wanted
        before = browser.run("document.querySelector('.kv-out').textContent")
        browser.run(SLID)
        assert browser.run("document.querySelector('.kv-out').textContent") != before
        browser.run("document.querySelector('.kv-in button').click()")
        shown = browser.run("[...document.querySelectorAll('.kv-row b')].map((b) => b.textContent)")
        assert shown == ["800 KiB", "24.2 GiB", "11.8 GiB", "15,440", "30", "7", "12.5 GiB"]
        assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.problems == []
