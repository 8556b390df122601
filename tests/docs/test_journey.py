"""The system on one page: its boxes and data are the code's, and a reader can step through it."""

import html
import json
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest

from jax_engine.engine.engine_core_output import EngineCoreOutput, SequenceOutput
from jax_engine.serving.messages import Add
from jax_engine.step import Moves, Row, Samples, Step
from scripts.tutorial import journey
from tests.docs.test_replay import CHROMIUM, needs_chromium
from tests.meta.trees import ROOT
from tests.support.chromium import chromium

CLASSES = {
    "server": "jax_engine.AsyncLLM",
    "engine": "jax_engine.LLMEngine",
    "scheduler": "jax_engine.core.scheduler.Scheduler",
    "blocks": "jax_engine.core.block_manager.BlockManager",
    "worker": "jax_engine.worker.worker.Worker",
    "cache": "jax_engine.worker.kv_cache.KVCache",
}

ASTRAY = """(() => {
  const box = (name) => document.querySelector(`.journey-box[data-box="${name}"]`);
  const far = (one, x, y) => {
    const { left, right, top, bottom } = one.getBoundingClientRect();
    return Math.hypot(Math.max(left - x, x - right, 0), Math.max(top - y, y - bottom, 0));
  };
  return [...document.querySelectorAll(".journey-arrows line")].filter((line) => {
    const { from, to } = line.dataset, points = [];
    for (const end of [0, 0.25, 0.5, 0.75, 1]) {
      const point = line.getPointAtLength(end * line.getTotalLength());
      points.push(point.matrixTransform(line.getScreenCTM()));
    }
    const others = [...document.querySelectorAll(".journey-box")]
      .filter((one) => one !== box(from) && one !== box(to));
    return line.getTotalLength() < 12 || far(box(from), points[0].x, points[0].y) > 4
      || far(box(to), points[4].x, points[4].y) > 4
      || points.some(({ x, y }) => others.some((one) => far(one, x, y) === 0));
  }).map((line) => `${line.dataset.from} to ${line.dataset.to}`);
})()"""
"""Arrows that are too short to see, do not end at their boxes, or run through others."""


def test_boxes_are_classes_and_pages_that_exist() -> None:
    for name, (title, what, page, _) in journey.BOXES.items():
        assert (ROOT / "docs" / page).exists(), page
        if name in CLASSES:
            module, _, cls = CLASSES[name].rpartition(".")
            assert isinstance(getattr(import_module(module), cls), type)
            assert name == "cache" or cls in (title, what.partition(",")[0])
    assert {stop.box for stop in journey.stops()} == set(journey.BOXES)


def test_messages_have_the_fields_that_are_shown() -> None:
    assert {"request_id", "token_ids", "params"} <= set(Add.__struct_fields__)
    assert {"outputs", "finished"} <= set(EngineCoreOutput.__struct_fields__)
    assert "token_ids" in SequenceOutput.__struct_fields__
    assert {"start", "tokens"} <= set(Row._fields)
    assert [field.name for field in fields(Samples)] == ["tokens", "indices"]
    assert {"rows", "samples", "block_tables", "moves"} <= set(Step._fields)
    assert set(Moves._fields) == {"swap_in", "swap_out", "copy"}


def test_what_the_stops_show() -> None:
    data = [stop.data for stop in journey.stops()]
    assert data[5] == "block table: [7, 6]"
    assert data[7] == "slots: [28, 29, 30, 31, 24]"  # 7 x 4 + 0 .. 3, 6 x 4 + 0
    assert data[-1] == "8 of 8 blocks free"


@pytest.mark.slow
def test_tokens_are_smollm2_s(smollm2_path: Path) -> None:
    from jax_engine import LLM, SamplingParams

    (output,) = LLM(str(smollm2_path)).generate(
        journey.TEXT, SamplingParams(temperature=0.0, max_tokens=1)
    )
    assert output.prompt_token_ids == journey.TOKENS
    assert (output.outputs[0].token_ids, output.outputs[0].text) == ([journey.TOKEN], journey.NEXT)


@needs_chromium
@pytest.mark.parametrize("width", [1400, 390])
def test_a_reader_follows_the_request(tmp_path: Path, width: int) -> None:
    scripts = "".join(
        f"<script>{(ROOT / 'docs' / 'javascripts' / name).read_text('utf-8')}</script>"
        for name in ("elements.js", "journey.js", "journey_arrows.js")
    )
    styles = "".join(
        (ROOT / "docs" / "stylesheets" / f"{name}.css").read_text("utf-8")
        for name in ("figures", "journey")
    )
    page = tmp_path / "journey.html"
    page.write_text(
        f'<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<style>html {{ font-size: 125%; }} {styles}</style><body class="md-typeset">'
        f"{journey.diagram(False, '')}{scripts}",
        encoding="utf-8",
    )
    here = "document.querySelector('.is-here').dataset.box"
    with chromium(CHROMIUM, tmp_path) as browser:
        browser.size(width, 900, phone=width < 1000)
        browser.open(page.as_uri())
        browser.until("!!document.querySelector('.journey-number')")
        seen = []
        for stop in journey.stops():
            seen.append((browser.run(here), stop.box))
            assert browser.run("document.querySelector('.journey-data').textContent") == stop.data
            browser.run(
                "document.querySelector('.journey').dispatchEvent("
                "new KeyboardEvent('keydown', {key: 'ArrowRight'}))"
            )
        assert all(found == wanted for found, wanted in seen)
        assert browser.run("document.querySelector('.journey-number').textContent") == "1 / 14"
        assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.run("document.querySelectorAll('.journey-arrows line').length") == 8
        browser.until(f"{ASTRAY}.length === 0")  # they are drawn with the next frame
        assert browser.problems == []
    stops = html.unescape(page.read_text("utf-8").partition('data-stops="')[2].partition('"')[0])
    assert len(json.loads(stops)) == 14
