"""Latency against request rate: Figures 12, 14, 16 and 17."""

from benchmarks.paper.figure import Figure, Panel, Row
from benchmarks.paper.memory import ALPACA_ASSUMPTION, SHAREGPT_ASSUMPTION
from benchmarks.paper.systems import (
    BEAM_ASSUMPTION,
    COST_ASSUMPTION,
    RATE_ASSUMPTION,
    SYSTEMS,
    Load,
    during,
)
from benchmarks.paper.traces import EARLIER_TURNS, SENTENCE, alpaca, chat, sentences, sharegpt

KNEES = {
    "ShareGPT": {"ft": 0.3, "max": 0.5, "pow2": 0.75, "oracle": 1.1, "vLLM": 1.9},
    "Alpaca": {"ft": 5.0, "max": 7.0, "pow2": 13.0, "oracle": 20.0, "vLLM": 28.0},
}
"""The knees of OPT-13B in Figure 12, read off: the rates at which the curves turn upwards."""
MODELS = ("OPT-13B", "OPT-66B", "OPT-175B")
STARTS = {
    ("ShareGPT", "OPT-13B"): 1.0,
    ("ShareGPT", "OPT-66B"): 0.6,
    ("ShareGPT", "OPT-175B"): 1.5,
    ("Alpaca", "OPT-13B"): 20.0,
    ("Alpaca", "OPT-66B"): 12.0,
    ("Alpaca", "OPT-175B"): 15.0,
}
"""Requests a second where the search begins."""
X, Y = "requests a second", "normalised latency, s a token"
WIDTHS = (1, 2, 4, 6)
GAIN_BASIC, GAIN_WIDTH_6 = 1.3, 2.3
SHARED = {"1-shot": (80, 1.67), "5-shot": (341, 3.58)}


def _panel(title: str, load: Load, systems: tuple[str, ...], start: float) -> tuple[Panel, dict]:
    """The curves, and the rate that each system sustains."""
    series, rates = {}, {}
    for name in systems:
        guess = start * {"vLLM": 1.8, "ft": 0.25}.get(name, 1.0)
        rates[name], series[SYSTEMS[name]] = load.curve(name, guess)
    return Panel(title, X, Y, series), rates


def figure_12(seconds: float) -> Figure:
    """Basic sampling: one output a request."""
    rows, panels = [], []
    for dataset, lengths in (("ShareGPT", sharegpt()), ("Alpaca", alpaca())):
        for model in MODELS:
            length = seconds if dataset == "ShareGPT" else seconds / 6
            load = Load(model, lengths, length)
            title = f"{model}, {dataset}"
            panel, rates = _panel(title, load, tuple(SYSTEMS), STARTS[dataset, model])
            panels.append(panel)
            knees = KNEES[dataset] if model == "OPT-13B" else {}
            for name, rate in rates.items():
                paper = knees.get(name)
                rows.append(Row(f"{title}: {SYSTEMS[name]}", rate, "req/s", paper, read_off=True))
            for other in ("oracle", "max", "ft"):
                ratio = rates["vLLM"] / rates[other]
                paper = knees["vLLM"] / knees[other] if knees else None
                what = f"{title}: vLLM over {SYSTEMS[other]}"
                rows.append(Row(what, ratio, "×", paper, read_off=True))
    return Figure(
        "Normalised latency against request rate, one sample",
        "Figure 12",
        "simulated",
        [
            COST_ASSUMPTION,
            RATE_ASSUMPTION,
            SHAREGPT_ASSUMPTION,
            ALPACA_ASSUMPTION,
            during(ShareGPT=seconds, Alpaca=seconds / 6),
            "The paper's rates are where its curves turn upwards, read off by eye, OPT-13B only.",
        ],
        rows,
        panels,
        "on ShareGPT 1.7 to 2.7 times the rate of Orca (Oracle), 2.7 to 8 times that of Orca "
        "(Max), up to 22 times that of FasterTransformer",
    )


def figure_14(seconds: float) -> Figure:
    """Several outputs a request: samples share the blocks of its prompt, beams much more."""
    rows, panels = [], []
    cases = [(width, False) for width in WIDTHS] + [(width, True) for width in WIDTHS[1:]]
    for width, beams in cases:
        length = seconds / 12 if beams else seconds / 6
        load = Load("OPT-13B", alpaca(), length, num_samples=width, beam_search=beams)
        outputs = "1 output" if width == 1 else f"{width} outputs"
        title = f"beam search, {width} beams" if beams else f"parallel sampling, {outputs}"
        panel, rates = _panel(title, load, ("vLLM", "oracle"), 20.0 / width)
        panels.append(panel)
        paper = GAIN_BASIC if width == 1 else GAIN_WIDTH_6 if beams and width == 6 else None
        gain = rates["vLLM"] / rates["oracle"]
        rows.append(Row(f"{title}: vLLM over Orca (Oracle)", gain, "×", paper))
    return Figure(
        "Parallel sampling and beam search, OPT-13B on Alpaca",
        "Figure 14",
        "simulated",
        [
            COST_ASSUMPTION,
            RATE_ASSUMPTION,
            ALPACA_ASSUMPTION,
            during(sampling=seconds / 6, beams=seconds / 12),
            "All samples of a request are as long as "
            "the trace says. Orca stores the prompt for each sample and computes it once; that it "
            "has to copy whole beams is not counted.",
            BEAM_ASSUMPTION,
        ],
        rows,
        panels,
        f"the gain over Orca (Oracle) goes from {GAIN_BASIC}× in basic sampling to {GAIN_WIDTH_6}× "
        "in beam search with a width of 6",
    )


def figure_16(seconds: float) -> Figure:
    """A prefix that all requests share."""
    rows, panels = [], []
    for shots, (prefix_len, paper) in SHARED.items():
        load = Load(
            "LLaMA-13B",
            sentences(prefix_len),
            seconds / 6,
            prefix_len=prefix_len,
            paged={"scheduling": "unified", "enable_prefix_caching": True},
        )
        title = f"{shots}, prefix of {prefix_len} tokens"
        panel, rates = _panel(title, load, ("vLLM", "oracle"), 12.0 if shots == "1-shot" else 6.0)
        panels.append(panel)
        gain = rates["vLLM"] / rates["oracle"]
        rows.append(Row(f"{title}: vLLM over Orca (Oracle)", gain, "×", paper))
    return Figure(
        "Translation behind a shared prefix, LLaMA-13B",
        "Figure 16",
        "simulated",
        [
            COST_ASSUMPTION,
            RATE_ASSUMPTION,
            f"Sentences are synthetic: gamma (shape 4) with means of {SENTENCE[0]:g} tokens in and "
            f"{SENTENCE[1]:g} out. The paper does not give WMT16's lengths, and the gain depends "
            "on them.",
            "The prefix is found by the prefix cache (unified scheduling); the paper's is reserved "
            "by the provider.",
            during(requests=seconds / 6),
        ],
        rows,
        panels,
    )


def figure_17(seconds: float) -> Figure:
    """A chatbot: long prompts, made of the conversation so far."""
    load = Load("OPT-13B", chat(), seconds)
    panel, rates = _panel("chat", load, ("vLLM", "oracle", "pow2", "max"), 0.5)
    rows = [Row(SYSTEMS[name], rate, "req/s") for name, rate in rates.items()]
    rows.append(Row("vLLM over Orca (Oracle)", rates["vLLM"] / rates["oracle"], "×", 2.0))
    return Figure(
        "Chatbot, OPT-13B",
        "Figure 17",
        "simulated",
        [
            COST_ASSUMPTION,
            RATE_ASSUMPTION,
            "Synthetic conversations: turns with ShareGPT's lengths, a geometric number of earlier "
            f"turns ({EARLIER_TURNS:g} on average, so most prompts are 1024 long); the last 1024 "
            "tokens are the prompt, at most 1024 the output. Nothing is kept between turns.",
            during(requests=seconds),
        ],
        rows,
        [panel],
    )
