"""The arithmetic of `bench serve`, by hand, and the times of arrivals."""

from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jax_engine.commands.bench import serve
from jax_engine.commands.bench.benchmark_request import EventReader, Outcome, arrival_times
from jax_engine.commands.bench.figures import block, figures
from jax_engine.errors import ConfigError

# Three answers of 3, 1 and 5 tokens, the last one in three pieces; and one that failed.
OUTCOMES = [
    Outcome(sent=1.0, num_prompt=10, num_output=3, arrived=[1.2, 1.3, 1.5]),
    Outcome(sent=2.0, num_prompt=20, num_output=1, arrived=[2.4]),
    Outcome(sent=3.0, num_prompt=30, num_output=5, arrived=[3.1, 3.2, 3.9]),
    Outcome(sent=4.0, num_prompt=40, num_output=7, arrived=[4.1], error="gone"),
]


def test_figures_by_hand() -> None:
    found = figures(OUTCOMES, 4.0, percentiles=(50, 99.9), goodput={"ttft": 200, "tpot": 150.1})
    counts = ("completed", "failed", "total_input_tokens", "total_output_tokens")
    assert [found[name] for name in counts] == [3, 1, 60, 9]
    wanted = {
        "request_throughput": 3 / 4,
        "output_throughput": 9 / 4,
        "total_token_throughput": 69 / 4,
        "request_goodput": 1 / 4,  # the second is late, the third slow: 200 ms a token
        "mean_ttft_ms": (200 + 400 + 100) / 3,
        "median_ttft_ms": 200,
        "p50_ttft_ms": 200,
        "mean_tpot_ms": (150 + 200) / 2,
        "std_tpot_ms": 25,
        "mean_itl_ms": (100 + 200 + 100 + 700) / 4,
        "median_itl_ms": 150,
        "mean_e2el_ms": (500 + 400 + 900) / 3,
        "mean_normalized_latency_ms": (500 / 3 + 400 + 180) / 3,
    }
    assert {name: found[name] for name in wanted} == pytest.approx(wanted)
    assert found["p99.9_e2el_ms"] == pytest.approx(500 + 400 * 0.998)


def test_goodput_counts_limits_of_one_token_as_kept() -> None:
    assert figures(OUTCOMES, 1.0, goodput={"tpot": 0.0})["request_goodput"] == 1.0
    assert figures(OUTCOMES, 1.0, goodput={"e2el": 450})["request_goodput"] == 1.0
    assert figures(OUTCOMES, 1.0)["request_goodput"] is None


def test_two_tokens_have_a_time_between_them() -> None:
    two = Outcome(sent=1.0, num_prompt=1, num_output=2, arrived=[1.5, 1.75])
    assert figures([two], 1.0)["mean_tpot_ms"] == pytest.approx(250)


def test_nothing_completed_is_zeros() -> None:
    found = figures(OUTCOMES[3:], 2.0)
    assert (found["completed"], found["output_throughput"], found["mean_itl_ms"]) == (0, 0, 0)


def test_the_block_has_a_line_for_each_figure() -> None:
    found = figures(OUTCOMES, 4.0, goodput={"ttft": 200})
    lines = block(found, ["ttft", "e2el"], [99], rate=inf, max_concurrency=8).split("\n")
    assert all(len(line.rstrip()) <= 51 for line in lines)
    assert "Successful requests:                     3" in [line.rstrip() for line in lines]
    text = "\n".join(lines)
    for part in ("Maximum request concurrency: ", "P99 TTFT (ms): ", "Mean E2EL (ms): ", "goodput"):
        assert part in text
    assert "configured" not in text and "TPOT" not in text and "Inter-token" not in text
    shown = block(figures(OUTCOMES, 4.0), [], [], rate=2.0)
    assert "Request rate configured (RPS):           2.00" in shown and "goodput" not in shown


def test_events_in_any_parts() -> None:
    stream = (
        b'data: {"choices":[{"text":"a"}]}\n\n: a comment\n\n'
        b'data: {"choices":[{"delta":{}}]}\r\n\r\n'
        b'data: {"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":9}}\n\n'
        b"data: [DONE]\n\n"
    )
    for size in (1, 7, len(stream)):
        outcome = Outcome(0.0, num_prompt=3)
        reader = EventReader(outcome)
        for i in range(0, len(stream), size):
            reader.feed(stream[i : i + size], now=float(i))
        reader.end()
        assert (outcome.num_prompt, outcome.num_output, outcome.error) == (4, 9, None)
        assert len(outcome.arrived) == 2 and outcome.arrived == sorted(outcome.arrived)


@pytest.mark.parametrize(
    ("stream", "error"),
    [
        (b'data: {"choices":[{}]}\n\n', "before [DONE]"),
        (b'data: {"choices":[{}]}\n\ndata: {"error":{"code":"engine_dead"}}\n\n', "engine_dead"),
        (b"data: [DONE]\n\n", "no tokens"),
    ],
)
def test_an_answer_that_is_not_whole_has_failed(stream: bytes, error: str) -> None:
    outcome = Outcome(0.0)
    reader = EventReader(outcome)
    reader.feed(stream, 1.0)
    reader.end()
    assert outcome.error is not None and error in outcome.error


def test_tokens_are_pieces_where_the_server_does_not_count() -> None:
    outcome = Outcome(0.0)
    reader = EventReader(outcome)
    reader.feed(b'data: {"choices":[{}]}\n\n' * 3 + b"data: [DONE]\n\n", 1.0)
    reader.end()
    assert (outcome.num_output, outcome.error) == (3, None)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0, inf])
def test_arrivals_have_their_rate_and_spread(burstiness: float) -> None:
    times = arrival_times(4000, 8.0, burstiness, np.random.default_rng(1))
    assert times == arrival_times(4000, 8.0, burstiness, np.random.default_rng(1))
    assert times[-1] == pytest.approx(500.0)
    gaps = np.diff([0.0, *times])
    assert (gaps >= 0).all()
    # The coefficient of variation of a gamma distribution: 1 for a Poisson process
    assert gaps.std() / gaps.mean() == pytest.approx(burstiness**-0.5, rel=0.1)


def test_an_infinite_rate_is_all_at_once() -> None:
    assert arrival_times(3, inf, 1.0, np.random.default_rng(0)) == [0.0, 0.0, 0.0]


GOOD: dict[str, Any] = {
    "num_prompts": 1, "input_len": None, "output_len": None, "random_input_len": 1,
    "random_output_len": 1, "random_range_ratio": 0.0, "dataset_name": "random",
    "dataset_path": None, "request_rate": 1.0, "burstiness": 1.0, "max_concurrency": None,
    "num_warmups": 0, "percentile_metrics": "ttft,e2el", "metric_percentiles": "50,99.9",
    "goodput": ["ttft:200", "tpot:50.5"],
}  # fmt: skip


def test_flags_are_read() -> None:
    assert serve.check(SimpleNamespace(**GOOD)) == (  # type: ignore[arg-type]
        {"ttft": 200.0, "tpot": 50.5}, ["ttft", "e2el"], [50.0, 99.9]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("goodput", ["itl:3"], "'itl:3' is not NAME:MILLISECONDS"),
        ("goodput", ["ttft"], "'ttft' is not NAME:MILLISECONDS"),
        ("goodput", ["ttft:nan"], "'ttft:nan' is not"),
        ("request_rate", 0.0, "--request-rate must be above 0, got 0"),
        ("request_rate", float("nan"), "--request-rate must be above 0, got nan"),
        ("burstiness", -1.0, "--burstiness must be above 0"),
        ("max_concurrency", 0, "--max-concurrency must be at least 1"),
        ("num_warmups", -1, "--num-warmups must be at least 0"),
        ("percentile_metrics", "ttft,x", "'x' is not one of ttft, tpot, itl, e2el"),
        ("metric_percentiles", "99,101", "[0, 100], got '99,101'"),
        ("metric_percentiles", "high", "[0, 100], got 'high'"),
        ("num_prompts", 0, "--num-prompts must be at least 1, got 0"),
        ("random_range_ratio", 1.0, "--random-range-ratio must be in [0, 1), got 1.0"),
        ("dataset_path", "x", "does not go with --dataset-name random"),
        ("dataset_name", "custom", "--dataset-name custom needs --dataset-path"),
    ],
)
def test_flags_that_make_no_sense(flag: str, value: Any, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        serve.check(SimpleNamespace(**GOOD | {flag: value}))  # type: ignore[arg-type]
    assert said in str(caught.value)
