"""What memory is used for, and how many requests fit: Table 1, Figures 2 and 13 (no GPU needed)."""

from benchmarks.paper.figure import Figure, Row
from benchmarks.paper.systems import COST_ASSUMPTION, FULL_ASSUMPTION, SYSTEMS, Load, when_full
from benchmarks.paper.traces import alpaca, sharegpt
from reference.cost_model import TABLE_1

SLOTS = {"OPT-13B": 15_700, "OPT-66B": 9_700, "OPT-175B": 60_100}
ORCAS = ("max", "pow2", "oracle")
STATES = {
    "max": (20.4, 13.3, 57.3, 8.9),
    "pow2": (26.8, 17.9, 13.6, 41.6),
    "oracle": (38.2, 25.2, None, 36.6),
    "vLLM": (96.3, None, None, None),
}
"""Per cent of the KV cache in Figure 2: tokens, reserved, internal, external and others."""
BATCHED = {
    "ShareGPT, 2 req/s": {"max": 7.00, "pow2": 9.81, "oracle": 13.62, "vLLM": 30.42},
    "Alpaca, 30 req/s": {"max": 7.00, "pow2": 43.24, "oracle": 72.75, "vLLM": 132.44},
}
SHAREGPT_ASSUMPTION = (
    "Request lengths drawn from a ShareGPT sample, scaled to the paper's means (161.31 in, 337.99 "
    "out); Poisson arrivals, fixed seed; outputs have the length of the trace."
)
ALPACA_ASSUMPTION = (
    "Alpaca's lengths are synthetic: gamma (shape 4) and exponential with the paper's means "
    "(19.31 in, 58.45 out)."
)


def table_1(_: float) -> Figure:
    """Slots of the KV cache, from the memory left for it."""
    rows = []
    for name, slots in SLOTS.items():
        model = TABLE_1[name]
        rows.append(Row(f"{name}, KB of KV cache a token", model.kv_bytes_per_token / 1024, "KB"))
        rows.append(Row(f"{name}, slots", model.num_slots, "tokens", slots))
    return Figure(
        "Model sizes and slots of the KV cache",
        "Table 1",
        "arithmetic",
        ["GPU memory, weights and memory for KV cache are the table's own, rounded to GB there."],
        rows,
    )


def figure_2(seconds: float) -> Figure:
    """How much of the KV cache holds tokens."""
    rows = []
    for name in (*ORCAS, "vLLM"):
        usage = when_full(Load("OPT-13B", sharegpt(), seconds).run(name, 2.0))
        found = (usage.stored, usage.reserved, usage.internal, usage.other)
        parts = ("tokens", "reserved", "internal fragmentation", "external and others")
        for part, slots, paper in zip(parts, found, STATES[name], strict=True):
            share = 100 * slots / TABLE_1["OPT-13B"].num_slots
            if paper is not None or (name == "vLLM" and share >= 0.05):
                rows.append(Row(f"{SYSTEMS[name]}, {part}", share, "%", paper))
    return Figure(
        "What the KV cache holds",
        "Figure 2",
        "simulated",
        [
            f"OPT-13B, ShareGPT at 2 req/s for {seconds / 60:g} minutes. " + SHAREGPT_ASSUMPTION,
            FULL_ASSUMPTION,
            "The rounding of the buddy allocator counts as external fragmentation. Of vLLM, "
            "internal is the unfilled rest of blocks, others are free blocks.",
        ],
        rows,
    )


def figure_13(seconds: float) -> Figure:
    """Requests that run at a time."""
    loads = {
        "ShareGPT, 2 req/s": (sharegpt(), 2.0, seconds),
        "Alpaca, 30 req/s": (alpaca(), 30.0, seconds / 6),
    }
    rows = []
    for title, (lengths, rate, length) in loads.items():
        batched = {}
        for name in (*ORCAS, "vLLM"):
            report = Load("OPT-13B", lengths, length).run(name, rate)
            batched[name] = when_full(report).requests
            paper = BATCHED[title][name]
            rows.append(Row(f"{title}: {SYSTEMS[name]}", batched[name], "requests", paper))
        for other in ORCAS if title.startswith("Share") else ():
            paper = BATCHED[title]["vLLM"] / BATCHED[title][other]
            rows.append(
                Row(
                    f"{title}: vLLM over {SYSTEMS[other]}",
                    batched["vLLM"] / batched[other],
                    "×",
                    paper,
                )
            )
    return Figure(
        "Average number of batched requests, OPT-13B",
        "Figure 13",
        "simulated",
        [
            f"Arrivals for {seconds / 60:g} minutes (ShareGPT), a sixth of that for Alpaca.",
            SHAREGPT_ASSUMPTION,
            ALPACA_ASSUMPTION,
            FULL_ASSUMPTION,
            COST_ASSUMPTION,
        ],
        rows,
    )
