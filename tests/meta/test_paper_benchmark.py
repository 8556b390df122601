"""`benchmarks.paper`: traces are what they claim, rates are found, every figure can be made."""

import argparse
import json
from itertools import pairwise

import numpy as np
import pytest

import benchmarks.paper.benchmark as command
from benchmarks.paper import tables, traces, verdicts
from benchmarks.paper.figure import Figure, Row
from benchmarks.paper.systems import ALLOWED_LATENCY_S, SYSTEMS, Load, sustained
from benchmarks.report import load_result

QUICK = [name for name in command.SIMULATED if name not in ("12", "14")]


@pytest.mark.parametrize(
    ("lengths", "means"),
    [
        (traces.sharegpt(), traces.SHAREGPT),
        (traces.alpaca(), traces.ALPACA),
        (traces.sentences(80), (80 + traces.SENTENCE[0], traces.SENTENCE[1])),
    ],
    ids=["ShareGPT", "Alpaca", "WMT16"],
)
def test_lengths_have_the_means(lengths: traces.Lengths, means: tuple[float, float]) -> None:
    rng = np.random.default_rng(0)
    pairs = np.array([lengths(rng) for _ in range(20_000)])
    assert pairs.mean(axis=0) == pytest.approx(means, rel=0.03)
    assert pairs.min() >= 1 and pairs.sum(axis=1).max() <= traces.MAX_MODEL_LEN


@pytest.mark.slow
def test_chats_fit_twice_1024() -> None:
    rng = np.random.default_rng(0)
    pairs = np.array([traces.chat()(rng) for _ in range(500)])
    assert pairs.max() == 1024 and pairs.min() >= 1


def test_arrivals_have_the_rate_and_the_seed_decides() -> None:
    one, same, other = (traces.trace(traces.alpaca(), 5.0, 400, seed=s) for s in (1, 1, 2))
    assert one == same != other
    assert len(one) == pytest.approx(2000, rel=0.1)
    assert all(a.arrival <= b.arrival < 400 for a, b in pairwise(one))


@pytest.mark.parametrize("start", [0.1, 2.9, 3.0, 40.0])
def test_the_rate_sustained_is_found_from_anywhere(start: float) -> None:
    def latency(rate: float) -> float:
        return 0.01 if rate <= 3.0 else ALLOWED_LATENCY_S + rate

    rate, seen = sustained(latency, start)
    assert 3.0 / 1.04 <= rate <= 3.0
    assert seen == {one: latency(one) for one in seen}


def test_every_system_serves() -> None:
    load = Load("OPT-13B", traces.alpaca(), 5.0)
    latencies = [load.run(name, 3.0).normalised_latency for name in SYSTEMS]
    assert all(0 < latency < ALLOWED_LATENCY_S for latency in latencies)


@pytest.mark.parametrize("name", QUICK)
def test_figures_in_miniature(name: str) -> None:
    figure = command.SIMULATED[name](90.0 if name == "15" else 6.0)
    assert figure.rows and figure.assumptions
    assert all(np.isfinite(row.ours) and row.ours > 0 for row in figure.rows if row.paper)
    assert json.loads(json.dumps(figure.result()))["kind"] == figure.kind
    assert figure.title in figure.text(name)


def test_distance_is_from_the_papers_number() -> None:
    assert Row("x", 3.0, "×", 2.0).distance_percent == pytest.approx(50)
    assert Row("x", 3.0, "×").distance_percent is None
    assert "≈2" in Row("x", 3.0, "×", 2.0, read_off=True).line()
    assert "paper  0" in Row("x", 3.0, "%", 0.0).line()
    assert "paper" not in Row("x", 3.0, "×").line()  # which may be in the claims below


def test_figures_are_in_the_papers_order() -> None:
    saved = {"19": {"title": "old"}, "2-measured": {}}
    found = command.merge(argparse.Namespace(), saved, {"table1": {}, "19": {"title": "new"}})
    assert list(found) == ["table1", "2-measured", "19"] and found["19"] == {"title": "new"}


def test_an_unknown_figure_is_refused() -> None:
    args = argparse.Namespace(figures=["12"], measured=True)  # which is simulated only
    with pytest.raises(SystemExit, match="--figures 12: choose from 2,"):
        list(command.run(args))


def test_sections_show_distances_and_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = Figure("T", "Figure 0", "measured", ["so"], [Row("a", 3.0, "×", 2.0, True)], [], "yes")
    saved = {"result": {"9-measured": figure.result() | {"on": "2 cores, today"}}}
    monkeypatch.setattr(tables, "load_result", lambda name: saved)
    text = tables.section("9-measured")
    assert "| a | 3× | ≈ 2× | +50 % |" in text and "*measured*" in text
    assert "The paper says: yes." in text and "`python -m benchmarks paper --figures 9" in text
    assert "measured`; 2 cores, today." in text
    assert "Not run yet" in tables.section("12")


def test_the_saved_result_has_every_simulated_figure() -> None:
    found = load_result("paper")["result"]
    assert [name for name in command.SIMULATED if name not in found] == []
    assert all(f"| {row} |" in verdicts.summary() for row in verdicts.MAIN.values())
    compared = [key for key, one in found.items() if any(row["paper"] for row in one["rows"])]
    assert sorted(verdicts.MAIN) == sorted(compared)


def test_a_verdict_says_how_far_off_a_figure_is() -> None:
    def said(main: float, *others: float) -> str:
        rows = [Row(str(i), ours, "×", 1.0) for i, ours in enumerate((main, *others))]
        return verdicts.verdict(Figure("T", "F", "simulated", [], rows).result(), "0")

    assert said(1.1, 0.9) == said(1.1, 1.0, 5.0) == said(0.9) == "met"
    assert said(1.1, 5.0) == said(1.2, 1.0) == said(0.7, 1.0) == "shape only"
    assert said(0.6, 1.0) == said(1.4, 1.0) == "missed"


def test_misses_come_first() -> None:
    order = [line.split("**")[1] for line in verdicts.summary().splitlines()[2:]]
    assert order == sorted(order, key=verdicts.VERDICTS.index)
