"""Numbers within sentences: each is used, comes from a result, and bears out what is said of it."""

import json
from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.values import VALUES
from scripts.docs_hooks import VALUE, on_page_markdown
from tests.meta.trees import ROOT

PAGES = [path.read_text("utf-8") for path in sorted((ROOT / "docs").rglob("*.md"))]


def test_every_value_is_used_and_every_used_one_is_known() -> None:
    assert {name for page in PAGES for name in VALUE.findall(page)} == set(VALUES)


def test_a_value_follows_its_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = report.load_result("step_profile")
    saved["result"]["decode_1"]["step_ms"] = 123.44
    (tmp_path / "step_profile.json").write_text(json.dumps(saved), "utf-8")
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    assert on_page_markdown("It takes {{ value decode_ms }} ms.") == "It takes 123.4 ms."


def test_a_page_without_its_result_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    with pytest.raises(FileNotFoundError, match="step_profile"):
        on_page_markdown("It takes {{ value decode_ms }} ms.")
    (tmp_path / "step_profile.json").write_text('{"result": {"decode_1": {}}}', "utf-8")
    with pytest.raises(KeyError, match="step_ms"):
        on_page_markdown("It takes {{ value decode_ms }} ms.")
    with pytest.raises(LookupError, match="known are matrix_gflop_per_s"):
        on_page_markdown("It takes {{ value nothing }} ms.")


def _distances(figure: str, name: str, unit: str) -> list[float]:
    """From the paper, in percent."""
    rows = report.load_result("paper")["result"][figure]["rows"]
    found = [row for row in rows if row["what"].startswith(name) and row["unit"] == unit]
    return [abs(float(row["distance_percent"])) for row in found]


def test_what_is_said_of_them_is_so() -> None:
    """The pages' own conclusions, should a new measurement turn one over."""

    def number(name: str) -> float:
        return float(VALUES[name]().split(" to ")[0])

    assert number("operations_per_byte") > 4, "kernel-ladder.md: more than a decode has"
    assert number("cache_copy_ms") > number("decode_ms"), "jax-engine.md: copying costs more"
    assert number("prompt_ms") > 5 * number("decode_ms"), "chunked-prefill.md: a pause"
    assert number("prefix_over_vllm") > 1, "prefix-caching.md: times vLLM's"
    assert number("paper_off_13") >= max(_distances("13", "ShareGPT", "requests"))
    assert number("samples_save_measured") < number("alpaca_samples_save_simulated")
