"""Memory that the outputs of one request share: Figure 15."""

from benchmarks.paper.figure import Figure, Panel, Row
from benchmarks.paper.memory import ALPACA_ASSUMPTION, SHAREGPT_ASSUMPTION
from benchmarks.paper.systems import BEAM_ASSUMPTION, Load
from benchmarks.paper.traces import alpaca, sharegpt

WIDTHS = (2, 4, 6)
PAPER = {
    ("Alpaca", False): {2: 6.09, 4: 8.53, 6: 9.79},
    ("Alpaca", True): {2: 37.56, 4: 53.13, 6: 55.16},
    ("ShareGPT", False): {2: 16.2, 6: 30.5},
    ("ShareGPT", True): {2: 44.3, 6: 66.3},
}
"""Per cent. Of ShareGPT the text gives the range; its ends stand at the ends of the widths."""
RATES = {"Alpaca": 12.0, "ShareGPT": 1.0}
"""Requests a second, divided by the width: nobody waits for memory."""


def saved_percent(dataset: str, width: int, beam_search: bool, seconds: float) -> float:
    """Blocks saved by sharing, of those that there would be without."""
    lengths = alpaca() if dataset == "Alpaca" else sharegpt()
    load = Load("OPT-13B", lengths, seconds, num_samples=width, beam_search=beam_search)
    usage = load.run("vLLM", RATES[dataset] / width).always.usage
    return 100 * (1 - usage.physical / usage.logical)


def figure_15(seconds: float) -> Figure:
    """Parallel sampling and beam search."""
    rows = []
    panels = []
    for beams, how in ((False, "parallel sampling"), (True, "beam search")):
        series: dict[str, dict[float, float]] = {}
        for dataset in RATES:
            length = seconds / (8 if dataset == "Alpaca" else 3)
            found = {width: saved_percent(dataset, width, beams, length) for width in WIDTHS}
            series[dataset] = {float(width): saved for width, saved in found.items()}
            for width, saved in found.items():
                paper = PAPER[dataset, beams].get(width)
                rows.append(Row(f"{dataset}, {how}, {width} outputs", saved, "%", paper))
        panels.append(Panel(how, "outputs", "blocks saved, %", series))
    return Figure(
        "KV blocks saved by sharing",
        "Figure 15",
        "simulated",
        [
            ALPACA_ASSUMPTION,
            SHAREGPT_ASSUMPTION,
            "Counted in the block manager: blocks in all tables, and distinct blocks, each "
            "averaged over time; B = 16.",
            "All samples of a request are as long as the trace says. The paper's range for "
            "ShareGPT is taken for its ends, 2 and 6 outputs.",
            BEAM_ASSUMPTION,
        ],
        rows,
        panels,
    )
