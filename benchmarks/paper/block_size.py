"""The block size: latency (Figure 18b), and swapping against recomputing (Figure 19)."""

from benchmarks.paper.figure import Figure, Panel, Row
from benchmarks.paper.memory import ALPACA_ASSUMPTION, SHAREGPT_ASSUMPTION
from benchmarks.paper.systems import COST_ASSUMPTION, Load
from benchmarks.paper.traces import alpaca, sharegpt
from reference.cost_model import BLOCK_TOKENS, TABLE_1

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
MOVED_TOKENS = 256
GOOD = 1.2
"""A block size is as good as the best if its latency is at most so many times the best's."""


def figure_18b(seconds: float) -> Figure:
    """Latency by block size, at a rate that the best sustain."""
    series: dict[str, dict[float, float]] = {}
    rows = []
    for dataset, lengths, rate, length in (
        ("ShareGPT", sharegpt(), 1.6, seconds),
        ("Alpaca", alpaca(), 22.0, seconds / 6),
    ):
        series[dataset] = {
            float(size): Load("OPT-13B", lengths, length, paged={"block_size": size})
            .run("vLLM", rate)
            .normalised_latency
            for size in SIZES
        }
        best = min(series[dataset].values())
        good = [size for size, latency in series[dataset].items() if latency <= GOOD * best]
        low, high = (16, 128) if dataset == "ShareGPT" else (16, 32)
        rows.append(Row(f"{dataset}: smallest good block", min(good), "tokens", low))
        rows.append(Row(f"{dataset}: largest good block", max(good), "tokens", high))
    return Figure(
        "Latency by block size, OPT-13B",
        "Figure 18b",
        "simulated",
        [
            COST_ASSUMPTION,
            f"A block costs the kernel as much as reading {BLOCK_TOKENS} tokens more, so small "
            "blocks are slow by assumption; what large ones waste comes out of the block manager.",
            f"Good is within {GOOD - 1:.0%} of the best. ShareGPT at 1.6 req/s for "
            f"{seconds / 60:g} minutes, Alpaca at 22 for {seconds / 360:g}: "
            "about 85 % of what B = 16 sustains.",
            SHAREGPT_ASSUMPTION,
            ALPACA_ASSUMPTION,
        ],
        rows,
        [Panel("vLLM by block size", "block size", "normalised latency, s a token", series)],
        "block sizes from 16 to 128 are best on ShareGPT, 16 and 32 on Alpaca",
    )


def figure_19(_: float) -> Figure:
    """Milliseconds to take a sequence's blocks away and to have them again."""
    model = TABLE_1["OPT-13B"]
    swap = {float(b): 2e3 * model.seconds_to_move(MOVED_TOKENS, b) for b in SIZES}
    recompute = {float(b): 1e3 * model.seconds_to_recompute(MOVED_TOKENS) for b in SIZES}
    worst = max(100 * (recompute[b] / swap[b] - 1) for b in swap)
    rows = [Row("recomputing above swapping, at most", worst, "%")]
    rows += [
        Row(f"recomputing over swapping at B = {size}", recompute[size] / swap[size], "×")
        for size in (1, 16, 32, 64, 256)
    ]
    return Figure(
        "Recomputing and swapping by block size, OPT-13B",
        "Figure 19",
        "simulated",
        [
            f"{MOVED_TOKENS} tokens, swapped out and in again, or computed again as one prompt.",
            "PCIe at 12 GB/s, and 10 µs for each copy; each layer's keys and each layer's values "
            "of a block are a copy of their own. These two constants decide the figure.",
        ],
        rows,
        [Panel("256 tokens", "block size", "milliseconds", {"swap": swap, "recompute": recompute})],
        "recomputing costs the same at every block size, and never more than 20 % above swapping; "
        "from 16 to 64 the two are comparable",
    )
