"""Results of `benchmarks.compare.servers` as Markdown, for docs/serving.md."""

from typing import Any

from benchmarks.compare.servers.server import KINDS
from benchmarks.compare.workloads import DECODING, LONG_PROMPT
from benchmarks.report import load_results, machine_in_words

TITLES = {name: kind.title for name, kind in KINDS.items()} | {"generate": "`LLM.generate`"}
TITLES |= {f"{name}_whole": f"{kind.title}, whole answers" for name, kind in KINDS.items()}
W1 = {
    "output tokens/s": "output_throughput",
    "ours / its": "ours_over_this",
    "TTFT p50, ms": "median_ttft_ms",
    "TPOT p50, ms": "median_tpot_ms",
    "normalised, ms": "mean_normalized_latency_ms",
    "`/health` p50, ms": "health_p50_ms",
    "most, ms": "health_max_ms",
}
RATES = {
    "output tokens/s": "output_throughput",
    "goodput, requests/s": "request_goodput",
    "TTFT p50, ms": "median_ttft_ms",
    "p99, ms": "p99_ttft_ms",
    "TPOT p50, ms": "median_tpot_ms",
    "p99, ms ": "p99_tpot_ms",
    "normalised, ms": "mean_normalized_latency_ms",
    "others, cores": "others_cores",
}
BESIDE = {
    "ITL p50, ms": "median_itl_ms",
    "longest, ms": "longest_itl_ms",
    "TTFT of the prompts, ms": "prompt_ttft_ms",
    "output tokens/s": "output_throughput",
}
STREAMS = {
    "completed": "completed",
    "failed": "failed",
    "output tokens/s": "output_throughput",
    "`/health` most, ms": "health_max_ms",
}


def tables() -> str:
    """A section for each dtype that has been measured."""
    return "\n\n".join(map(_section, load_results("servers_*"))) or "Nothing measured yet."


def _section(content: dict[str, Any]) -> str:
    result = content["result"]
    starts = {
        name: {"ready": row["warm_ready_s"], "each": row["each_s"]}
        for name, row in result["start"].items()
    }
    rates = [
        ([f"{rate} a second", TITLES[name]], row)
        for rate, rows in result["rates"].items()
        for name, row in rows.items()
    ]
    limits = ", ".join(f"{name.upper()} {ms:,g} ms" for name, ms in result["goodput"].items())
    parts = [
        f"`{content['command']}`, {result['dtype']}, {content['date']}, "
        f"{machine_in_words(content['machine'])}, commit {content['versions']['commit']}.",
        "A warm start, in seconds until `/health` is 200:",
        _table(["server"], _named(starts), {"ready": "ready", "each start": "each"}),
        "W1, 32 requests at once, over HTTP:",
        _table(["server"], _named(result["W1"]), W1),
        f"W1's lengths as Poisson arrivals. Goodput counts requests within {limits}:",
        _table(["rate", "server"], rates, RATES),
        f"{DECODING} streams, while two prompts of {LONG_PROMPT:,} tokens come:",
        _table(["server"], _named(result["beside_prompts"]), BESIDE),
        f"{result['streams']:,} streams at once, 8 tokens in and 8 out:",
        _table(["server"], _named(result["open_streams"]), STREAMS),
    ]
    return "\n\n".join(parts)


def _named(rows: dict[str, Any]) -> list[tuple[list[str], dict[str, Any]]]:
    return [([TITLES[name]], row) for name, row in rows.items()]


def _table(
    heads: list[str], rows: list[tuple[list[str], dict[str, Any]]], columns: dict[str, str]
) -> str:
    lines = [
        f"| {' | '.join([*heads, *columns])} |",
        "|" + "---|" * len(heads) + "---:|" * len(columns),
    ]
    for names, row in rows:
        cells = [_cell(row.get(key, "")) for key in columns.values()]
        lines.append(f"| {' | '.join([*names, *cells])} |")
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:.2f}"
