"""`/metrics` of a server, as Prometheus and the two dashboards read it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from jax_engine.serving import stat_loggers
from tests.meta.trees import ROOT
from tests.serving.test_async_llm import SETTINGS
from tests.support.app_in_threads import app_in_threads
from tests.support.patience import HANG_S

PROMPT, MAX_TOKENS, N = "Once upon", 5, 2
SECONDS = [0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920,
           7680]  # fmt: skip
BETWEEN = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20,
           40, 80]  # fmt: skip
FIRST = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20,
         40, 80, 160, 640, 2560]  # fmt: skip
# vLLM's names, written down by hand: what its Grafana dashboard asks for, and what its own has else
HISTOGRAMS: dict[str, list[float] | None] = {
    "time_to_first_token_seconds": FIRST, "inter_token_latency_seconds": BETWEEN,
    "request_time_per_output_token_seconds": BETWEEN, "e2e_request_latency_seconds": SECONDS,
    "request_queue_time_seconds": SECONDS, "request_inference_time_seconds": SECONDS,
    "request_prefill_time_seconds": SECONDS, "request_decode_time_seconds": SECONDS,
    "request_params_n": [1, 2, 5, 10, 20], "request_num_preemptions": [1, 2, 3, 4, 5, 10, 20],
    "request_prompt_tokens": None,
    "request_generation_tokens": None, "request_max_num_generation_tokens": None,
    "request_params_max_tokens": None,
    "iteration_tokens_total": [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384],
}  # fmt: skip
GAUGES = ["num_requests_running", "num_requests_waiting", "num_requests_waiting_by_reason",
          "kv_cache_usage_perc"]  # fmt: skip
OLD_NAMES = {  # for which older dashboards ask
    "time_per_output_token_seconds": "inter_token_latency_seconds",
    "gpu_cache_usage_perc": "kv_cache_usage_perc",
}
COUNTERS = ["prompt_tokens", "generation_tokens", "prefix_cache_queries", "prefix_cache_hits",
            "num_preemptions", "request_success"]  # fmt: skip


@pytest.fixture(scope="module")
def page(checkpoint: Path) -> dict[str, Any]:
    """The page behind one request."""
    body = {"prompt": PROMPT, "max_tokens": MAX_TOKENS, "n": N, "ignore_eos": True}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stat_loggers, "WAIT_S", HANG_S)
        with app_in_threads(str(checkpoint), **SETTINGS) as client:
            answer = client.post("/v1/completions", json=body)
            assert answer.status_code == 200, answer.text
            text = client.get("/metrics").text
    return {one.name: one for one in text_string_to_metric_families(text)}


def samples(family: Any) -> dict[str, float]:
    """Sums over labels, by name."""
    found: dict[str, float] = {}
    for one in family.samples:
        found[one.name] = found.get(one.name, 0) + one.value
    return found


def test_names_types_labels_and_buckets_are_vllms(page: dict[str, Any]) -> None:
    for names, kind in ((HISTOGRAMS, "histogram"), (GAUGES, "gauge"), (COUNTERS, "counter")):
        for name in names:
            family = page[f"vllm:{name}"]
            assert family.type == kind, name
            for sample in family.samples:
                assert sample.labels["model_name"] == "tiny" and sample.labels["engine"] == "0"
    for name, limits in HISTOGRAMS.items():
        found = [one.labels["le"] for one in page[f"vllm:{name}"].samples if "le" in one.labels]
        assert found[-1] == "+Inf"
        if limits is not None:
            assert [float(one) for one in found[:-1]] == limits, name
    for old, name in OLD_NAMES.items():
        assert page[f"vllm:{old}"].type == page[f"vllm:{name}"].type
        mine, other = (list(samples(page[f"vllm:{one}"]).values()) for one in (old, name))
        assert mine == other
    reasons = {one.labels["finished_reason"] for one in page["vllm:request_success"].samples}
    assert {"stop", "length", "abort"} <= reasons
    (info,) = page["vllm:cache_config_info"].samples
    assert info.value == 1 and info.labels["block_size"] == "4"
    assert info.labels["num_gpu_blocks"] == "60" and info.labels["cache_dtype"] == "float32"
    # 60 blocks of 4 tokens, for requests of at most 64
    assert info.labels["kv_cache_size_tokens"] == "240"
    assert info.labels["kv_cache_max_concurrency"] == "3.75"
    assert "process_resident_memory_bytes" in page


def test_counts_are_those_of_the_one_request(page: dict[str, Any]) -> None:
    prompt, generated = len(PROMPT), MAX_TOKENS * N
    assert samples(page["vllm:prompt_tokens"])["vllm:prompt_tokens_total"] == prompt
    assert samples(page["vllm:generation_tokens"])["vllm:generation_tokens_total"] == generated
    counts = {name: samples(page[f"vllm:{name}"])[f"vllm:{name}_count"] for name in HISTOGRAMS}
    assert counts.pop("inter_token_latency_seconds") == generated - N
    assert counts.pop("iteration_tokens_total") >= MAX_TOKENS
    assert set(counts.values()) == {1}, counts
    sums = {name: samples(page[f"vllm:{name}"])[f"vllm:{name}_sum"] for name in HISTOGRAMS}
    parts = sums["request_prefill_time_seconds"] + sums["request_decode_time_seconds"]
    assert sums["request_inference_time_seconds"] == pytest.approx(parts)
    assert sums["request_queue_time_seconds"] + parts <= sums["e2e_request_latency_seconds"] + 1e-6
    assert sums["request_params_n"] == N and sums["request_max_num_generation_tokens"] == MAX_TOKENS


def test_each_panel_of_the_dashboard_asks_for_what_there_is(page: dict[str, Any]) -> None:
    board = json.loads((ROOT / "examples/grafana.json").read_text("utf-8"))
    names = {sample.name for family in page.values() for sample in family.samples}
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked += [one["definition"] for one in board["templating"]["list"] if "definition" in one]
    assert len(asked) > 25
    for expression in asked:
        found = re.findall(r"(?:vllm|jax_engine):\w+", expression)
        assert found and set(found) <= names, expression
        assert expression.count("(") == expression.count(")")
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
