"""The tables of docs/gpu.md hold what the results' files hold."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu_tables, report
from benchmarks.gpu.engine.expected import EXPECTED
from benchmarks.tables import TABLES
from tests.meta.trees import ROOT

NAMES = (
    "gpu_engine", "gpu_engine_h200", "gpu_graphs", "gpu_host", "gpu_kernels", "gpu_kernels_h200",
    "gpu_parts", "gpu_parts_h200", "gpu_products",
)  # fmt: skip
LAYER = "heads 32/8 x 128, blocks of 16"
HEAD: dict[str, Any] = {
    "date": "2026-11-26 11:08 UTC",
    "machine": {"devices": ["NVIDIA H100"]},
    "versions": {"jax": "0.11.2", "commit": "abc1234"},
}
SAID = "2026-11-26 11:08 UTC, NVIDIA H100, JAX 0.11.2, commit abc1234."
MODEL: dict[str, Any] = {
    "decode": {"tokens_per_s": 1234.5, "percent_of_bound": 41.2},
    "prefill": {"percent_of_matrix_rate": 42.3},
    "throughput": {"output_tokens_per_s": 23456.7, "percent_of_bound": 43.4},
    "first token": {"p50_over_bound": 4.45},
    "host time hidden": {
        "1_running": {"hidden_percent": 51.6},
        "256_running": {"step_off_ms": 6.79, "step_on_ms": 5.17},
    },
    "profile": {
        "decode of 1": {
            "device_ms": 1.5,
            "without_command_buffers_ms": 1.75,
            "parts": {"QKV": {"ms": 0.0928, "bound_ms": 0.0633}, "rest": {"ms": 0.25}},
        },
        "prompt of 2048": {
            "device_ms": 9.5,
            "without_command_buffers_ms": 9.75,
            "parts": {"QKV": {"ms": 0.5895, "bound_ms": 0.6061}},
        },
    },
}


# A run that was cut off: of one model of codes it has little.
FEW: dict[str, Any] = {
    "tests": {"pytest": "44 passed"},
    "models": {
        "Llama-3.2-1B": {
            **{part: MODEL[part] for part in ("decode", "prefill", "throughput", "first token")},
            "host profile": {
                "1_running": {
                    "step_ms": 2.25,
                    "stages.py:943 __call__": 1.25,
                    "x.py:1 _value": 0.5,
                },
                "256_running": {"step_ms": 4.5, "stages.py:943 __call__": 1.5, "x.py:9 f": 1.0},
            },
            "host time hidden": {
                "1_running": {"device_ms": 1.25, "step_off_ms": 2.5, "step_on_ms": 2.375},
                "256_running": {"device_ms": 2.625, "step_off_ms": 7.375, "step_on_ms": 5.125},
            },
            "graphs": {
                "decode of 1": {
                    "PIECEWISE": {"ms": 1.125, "enqueue_ms": 0.3124, "queued_ms": 1.0},
                    "steps on the device": {"ms": 1.0624},
                },
                "decode of 256": {
                    "PIECEWISE": {"ms": 2.25, "enqueue_ms": 0.625},
                    "steps on the device": {"ms": 2.375},
                },
            },
        },
        "Llama-3.1-8B": {"profile": MODEL["profile"]},
        "Llama-3.1-8B int4": {"decode": {"tokens_per_s": 99.5, "percent_of_bound": 84.5}},
    },
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
    _row("1 x 4096, int8 [4096, 4096], a scale a row", "mosaic", 13.81, 40.6),
    _row("16 x 4096, int4 [4096, 4096], groups of 128", "xla", 54.58, 5.6),
]

ROWS_H200 = [
    _row(f"1 x 1+128, {LAYER}", "triton", 10.19, 1.5),
    _row(f"1 x 1+128, {LAYER}", "FlashAttention 3, paged", 15.82, 1.0),
    _row(f"16 x 1+128, {LAYER}", "torch SDPA", 7.56, 32.4),
]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    (tmp_path / "gpu").mkdir()
    measured = {"models": {"Llama-3.2-1B": MODEL}, "tests": {"pytest": "25 passed"}, "rows": ROWS}
    (tmp_path / f"{gpu_tables.H100}.json").write_text(json.dumps(HEAD | measured), "utf-8")
    few = FEW | {"rows": ROWS_H200}
    (tmp_path / f"{gpu_tables.H200}.json").write_text(json.dumps(HEAD | few), "utf-8")
    return tmp_path


@pytest.mark.usefixtures("files")
def test_the_short_run_shows_what_it_has() -> None:
    assert TABLES["gpu_engine_h200"]().splitlines() == [
        SAID,
        "",
        "|  | Llama-3.2-1B | Llama-3.1-8B int4 |",
        "| --- | ---: | ---: |",
        "| decode, % of the bandwidth bound | 41.2 |  |",
        "| decode, tokens/s | 1,234 | 99.5 |",
        "| prefill, % of the matrix rate | 42.3 |  |",
        "| 256 running, % of the bound | 43.4 |  |",
        "| 256 running, output tokens/s | 23,457 |  |",
        "| first token of a lone prompt, times its bound | 4.45 |  |",
        "| 1 running, ms a step, on the device | 1.25 |  |",
        "| 1 running, ms a step, not ahead | 2.5 |  |",
        "| 1 running, ms a step, planned ahead | 2.375 |  |",
        "| 256 running, ms a step, on the device | 2.625 |  |",
        "| 256 running, ms a step, not ahead | 7.375 |  |",
        "| 256 running, ms a step, planned ahead | 5.125 |  |",
    ]
    assert TABLES["gpu_graphs"]().splitlines() == [
        SAID,
        "",
        "| Llama-3.2-1B | decode of 1, ms | to enqueue | behind others "
        "| decode of 256, ms | to enqueue | behind others |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| PIECEWISE | 1.125 | 0.312 | 1.000 | 2.250 | 0.625 |  |",
        "| steps on the device | 1.062 |  |  | 2.375 |  |  |",
    ]
    assert TABLES["gpu_host"]().splitlines() == [
        SAID,
        "",
        "| ms | Llama-3.2-1B, 1 running | Llama-3.2-1B, 256 running |",
        "| --- | ---: | ---: |",
        "| a step | 2.25 | 4.50 |",
        "| calls of compiled programs | 1.25 | 1.50 |",
        "| waiting for the drawn tokens | 0.50 | 0.00 |",
        "| everything else | 0.50 | 3.00 |",
    ]


@pytest.mark.usefixtures("files")
def test_measured_stands_beside_expected_and_the_aim() -> None:
    assert TABLES["gpu_engine"]().splitlines() == [
        SAID,
        "",
        "|  | Llama-3.2-1B: measured | expected | aim |",
        "| --- | ---: | ---: | ---: |",
        "| decode, % of the bandwidth bound | 41.2 | 60 | at least 80 |",
        "| decode, tokens/s | 1,234 |  |  |",
        "| prefill, % of the matrix rate | 42.3 | 55 | at least 60 |",
        "| 256 running, % of the bound | 43.4 | 25 |  |",
        "| 256 running, output tokens/s | 23,457 | 34,000 |  |",
        "| first token of a lone prompt, times its bound | 4.45 | 3.8 |  |",
        "| host time hidden, 1 running, % | 51.6 |  |  |",
        "| 256 running, ms a step, not ahead | 6.79 |  |  |",
        "| 256 running, ms a step, planned ahead | 5.17 |  |  |",
    ]


@pytest.mark.usefixtures("files")
def test_a_part_stands_beside_its_bound() -> None:
    assert TABLES["gpu_parts"]().splitlines() == [
        SAID,
        "",
        "| Llama-3.2-1B | decode of 1, ms | bound, ms | prompt of 2,048, ms | bound, ms |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| QKV | 0.093 | 0.063 | 0.590 | 0.606 |",
        "| rest | 0.250 |  |  |  |",
        "| the step, not profiled | 1.500 |  | 9.500 |  |",
        "| without command buffers | 1.750 |  | 9.750 |  |",
    ]


@pytest.mark.usefixtures("files")
def test_the_last_measurement_of_a_kernel_is_shown() -> None:
    assert TABLES["gpu_kernels"]().splitlines() == [
        f"{SAID} One layer: {LAYER}. The property tests on the device: 25 passed.",
        "",
        "| microseconds (% of the limit) | limit | Triton | Mosaic |",
        "| --- | ---: | ---: | ---: |",
        "| decode, 64 x 4,096 | 3.5 | 7,943 (95.2) | 9.25 (93.5) |",
        "| prompt, 1 x 8,192 | 3.5 |  | 77.5 (67.1) |",
    ]


@pytest.mark.usefixtures("files")
def test_only_shapes_that_a_kernel_of_ours_ran_are_shown() -> None:
    assert TABLES["gpu_kernels_h200"]().splitlines() == [
        f"{SAID} One layer: {LAYER}. The property tests on the device: 44 passed.",
        "",
        "| microseconds (% of the limit) | limit | Triton | FlashAttention 3 |",
        "| --- | ---: | ---: | ---: |",
        "| decode, 1 x 129 | 3.5 | 10.19 (1.5) | 15.82 (1.0) |",
    ]


@pytest.mark.usefixtures("files")
def test_products_are_a_table_of_their_own() -> None:
    assert TABLES["gpu_products"]().splitlines() == [
        SAID,
        "",
        "| microseconds (% of the limit) | limit | Mosaic | XLA |",
        "| --- | ---: | ---: | ---: |",
        "| 1 token, int8 [4,096, 4,096], a scale a row | 3.5 | 13.81 (40.6) |  |",
        "| 16 tokens, int4 [4,096, 4,096], groups of 128 | 3.5 |  | 54.58 (5.6) |",
    ]


@pytest.mark.parametrize("make", [TABLES[name] for name in NAMES], ids=NAMES)
def test_a_missing_file_or_figure_is_an_error(make: Callable[[], str], files: Path) -> None:
    both = [files / f"{name}.json" for name in (gpu_tables.H100, gpu_tables.H200)]
    for file in both:
        file.write_text(json.dumps(HEAD), "utf-8")
    with pytest.raises(KeyError, match=r"models|rows"):
        make()
    for file in both:
        file.unlink()
    with pytest.raises(FileNotFoundError, match=r"h[12]00"):
        make()


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
