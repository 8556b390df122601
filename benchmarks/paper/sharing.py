"""Memory that samples of one request share: Figure 15."""

from benchmarks.paper.figure import Figure, Panel, Row
from benchmarks.paper.memory import ALPACA_ASSUMPTION, SHAREGPT_ASSUMPTION
from benchmarks.paper.systems import Load
from benchmarks.paper.traces import Lengths, alpaca, sharegpt

ALPACA_PARALLEL = {2: 6.09, 4: 8.53, 6: 9.79}
SHAREGPT_PARALLEL = {2: 16.2, 6: 30.5}
"""The ends of the range that the text gives."""


def saved_percent(lengths: Lengths, num_samples: int, rate: float, seconds: float) -> float:
    """Blocks saved by sharing, of those that there would be without."""
    load = Load("OPT-13B", lengths, seconds, num_samples=num_samples)
    usage = load.run("vLLM", rate).always.usage
    return 100 * (1 - usage.physical / usage.logical)


def figure_15(seconds: float) -> Figure:
    """Parallel sampling."""
    rows, series = [], {}
    for dataset, lengths, rate, paper in (
        ("Alpaca", alpaca(), 20.0, ALPACA_PARALLEL),
        ("ShareGPT", sharegpt(), 1.0, SHAREGPT_PARALLEL),
    ):
        series[dataset] = {}
        for width in (2, 4, 6):
            saved = saved_percent(lengths, width, rate / width, seconds / 12)
            series[dataset][float(width)] = saved
            what = f"{dataset}, parallel sampling, {width} samples"
            rows.append(Row(what, saved, "%", paper.get(width)))
    return Figure(
        "KV blocks saved by sharing",
        "Figure 15",
        "simulated",
        [
            ALPACA_ASSUMPTION,
            SHAREGPT_ASSUMPTION,
            "Counted in the block manager: blocks in all tables, and distinct blocks, each averaged "
            "over time; B = 16.",
            "All samples of a request are as long as the trace says. The paper's range for ShareGPT "
            "is taken for its ends, 2 and 6 samples.",
        ],
        rows,
        [Panel("parallel sampling", "samples", "blocks saved, %", series)],
    )
