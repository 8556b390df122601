"""The tables of docs/gpu.md hold what the results' files hold."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu_tables, report
from benchmarks.gpu.engine.expected import EXPECTED
from benchmarks.tables import TABLES
from tests.meta.trees import ROOT

LAYER = "heads 32/8 x 128, blocks of 16"
HEAD: dict[str, Any] = {
    "date": "2026-11-26 11:08 UTC",
    "machine": {"devices": ["NVIDIA H100"]},
    "versions": {"jax": "0.11.2", "commit": "abc1234"},
    "tests": {"pytest": "25 passed"},
}
# A run that was cut off: of one model of codes it has little.
MODELS: dict[str, Any] = {
    "Llama-3.2-1B": {
        "decode": {"tokens_per_s": 1234.5, "percent_of_bound": 41.2},
        "throughput": {"output_tokens_per_s": 23456.7, "percent_of_bound": 43.4},
        "host profile": {
            "1_running": {"step_ms": 2.25, "stages.py:943 __call__": 1.25, "x.py:1 _value": 0.5},
            "256_running": {"step_ms": 4.5, "stages.py:943 __call__": 1.5, "x.py:9 f": 1.0},
        },
    },
    "Llama-3.1-8B": {"profile": {}},
    "Llama-3.1-8B int4": {"decode": {"tokens_per_s": 99.5, "percent_of_bound": 84.5}},
}


def _row(shape: str, method: str, us: float, percent: float) -> dict[str, Any]:
    part = "quantised weights" if "int" in shape else "decode"
    return {
        "part": part, "shape": shape, "method": method, "us": us, "percent_of_limit": percent,
        "predicted_us": 3.5,
    }  # fmt: skip


ROWS = [
    _row(f"64 x 1+4095, {LAYER}", "mosaic", 9.25, 93.5),
    _row(f"64 x 1+4095, {LAYER}", "triton", 8.5, 96.1),
    _row(f"64 x 1+4095, {LAYER}", "triton", 7943.4, 95.2),
    _row(f"1 x 8192+0, {LAYER}", "mosaic", 77.5, 67.1),
    _row(f"16 x 1+128, {LAYER}", "torch SDPA", 7.56, 32.4),
    _row("1 x 4096, int8 [4096, 4096], a scale a row", "mosaic", 13.81, 40.6),
    _row("16 x 4096, int4 [4096, 4096], groups of 128", "xla", 54.58, 5.6),
]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    (tmp_path / "gpu").mkdir()
    for card in (gpu_tables.H100, gpu_tables.H200):
        content = HEAD | {"models": MODELS, "rows": ROWS}
        (tmp_path / f"{card}.json").write_text(json.dumps(content), "utf-8")
    return tmp_path


def _rows(name: str) -> list[str]:
    return TABLES[name]().splitlines()[4:]


@pytest.mark.usefixtures("files")
def test_what_was_not_measured_is_empty_and_codes_have_no_bound_of_bfloat16() -> None:
    rows = _rows("gpu_engine_h200")
    assert rows[:3] == [
        "| decode, % of the bandwidth bound | 41.2 |  |",
        "| decode, tokens/s | 1,234 | 99.5 |",
        "| prefill, % of the matrix rate |  |  |",
    ]


@pytest.mark.usefixtures("files")
def test_parts_of_the_host_are_sums_and_the_rest_is_everything_else() -> None:
    assert _rows("gpu_host") == [
        "| a step | 2.25 | 4.50 |",
        "| calls of compiled programs | 1.25 | 1.50 |",
        "| waiting for the drawn tokens | 0.50 | 0.00 |",
        "| everything else | 0.50 | 3.00 |",
    ]


@pytest.mark.usefixtures("files")
def test_the_last_measurement_of_what_a_kernel_of_ours_ran_is_shown() -> None:
    assert _rows("gpu_kernels") == [
        "| decode, 64 x 4,096 | 3.5 | 7,943 (95.2) | 9.25 (93.5) |",
        "| prompt, 1 x 8,192 | 3.5 |  | 77.5 (67.1) |",
    ]
    assert (
        f"One layer: {LAYER}. The property tests on the device: 25 passed."
        in TABLES["gpu_kernels"]()
    )
    assert _rows("gpu_products") == [
        "| 1 token, int8 [4,096, 4,096], a scale a row | 3.5 | 13.81 (40.6) |  |",
        "| 16 tokens, int4 [4,096, 4,096], groups of 128 | 3.5 |  | 54.58 (5.6) |",
    ]


@pytest.mark.parametrize("name", ["gpu_engine", "gpu_kernels_h200"])
def test_a_missing_file_or_figure_is_an_error(name: str, files: Path) -> None:
    for file in (files / "gpu").iterdir():
        file.write_text(json.dumps(HEAD), "utf-8")
    with pytest.raises(KeyError, match=r"models|rows"):
        TABLES[name]()
    for file in (files / "gpu").iterdir():
        file.unlink()
    with pytest.raises(FileNotFoundError, match=r"h[12]00"):
        TABLES[name]()


def test_what_is_expected_is_of_rows_and_stands_on_the_page() -> None:
    shown = {keys for _, keys in gpu_tables.ROWS}
    assert {key[1:] for key in gpu_tables.ALSO_EXPECTED} <= shown
    assert {key[1:] for key in EXPECTED} - shown == {("transformers", "ours_over_theirs")}
    page = (ROOT / "docs" / "gpu.md").read_text("utf-8")
    for number in (8_000, 34_000):
        assert f"{number:,} output tokens/s" in page or f"{number:,} tokens/s" in page


def test_what_the_page_says_of_them_is_so() -> None:
    """The page's own conclusions, should a new measurement turn one over."""
    rows = report.load_result(gpu_tables.H100)["rows"]
    us = {(row["shape"].split(",")[0], row["method"]): row["us"] for row in rows}
    for decode in ("64 x 1+4095", "1 x 1+65535", "1 x 1+1023", "1 x 1+8191"):
        assert us[decode, "triton"] < us[decode, "mosaic"]
    assert us["1 x 8192+0", "mosaic"] < us["1 x 8192+0", "triton"]
    for shape in ("64 x 1+4095", "1 x 1+65535", "1 x 8192+0"):
        assert us[shape, "torch SDPA"] < min(us[shape, "triton"], us[shape, "mosaic"])


def test_what_the_page_says_of_an_h200_is_so() -> None:
    saved = report.load_result(gpu_tables.H200)
    small, large = (saved["models"][name] for name in (gpu_tables.PROFILED, gpu_tables.LARGE))
    peers = saved["peers"]["torch.compile, decode of 1, tokens/s"]
    assert large["decode"]["tokens_per_s"] > peers[gpu_tables.LARGE]
    one, many = (small["host profile"][f"{count}_running"] for count in (1, 256))
    calls = one["stages.py:943 __call__"]
    own = [each["step_ms"] - each["stages.py:943 __call__"] - each["array.py:629 _value"]
           for each in (one, many)]  # fmt: skip
    assert calls > one["step_ms"] / 2
    assert [
        round(4 * ms / all_ms["step_ms"]) for ms, all_ms in zip(own, (one, many), strict=True)
    ] == [1, 2]
    graphs = small["graphs"]["decode of 1"]
    assert all(way["queued_ms"] > 1.9 * way["enqueue_ms"] for name, way in graphs.items()
               if name not in ("NONE", "steps on the device"))  # fmt: skip
    assert graphs["NONE"]["queued_ms"] < graphs["NONE"]["enqueue_ms"]
    drafting = small["draft model"]["ms a step, the device accepts"]
    assert drafting > 10 * small["host time hidden"]["1_running"]["device_ms"]
    profile = {case: found["parts"] for case, found in large["profile"].items()}
    over = {
        case: {name: part["ms"] / part["bound_ms"] for name, part in parts.items()
               if part.get("bound_ms")}
        for case, parts in profile.items()
    }  # fmt: skip
    assert over["decode of 256"]["attention over pages"] > 2
    assert over["prompt of 2048"]["attention over pages"] > 4
    products = ("QKV", "attention output", "gate and up", "down")
    assert all(over["prompt of 2048"][name] < 1.1 for name in products)
