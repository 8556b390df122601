"""Results of `benchmarks.compare.servers` as Markdown, for docs/serving.md."""

from typing import Any

from benchmarks.compare.servers.server import KINDS
from benchmarks.compare.workloads import DECODING, LONG_PROMPT
from benchmarks.markdown import Column, table, words
from benchmarks.report import load_results, machine_in_words, present

TITLES = {name: kind.title for name, kind in KINDS.items()} | {"generate": "`LLM.generate`"}
TITLES |= {f"{name}_whole": f"{kind.title}, whole answers" for name, kind in KINDS.items()}


def _figure(heading: str, key: str) -> Column:
    return Column(heading, lambda row: _cell(row.get(key, "")))


def _cell(value: Any) -> str:
    if not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:.2f}"


SERVER, RATE = words("server", "server"), words("rate", lambda row: f"{row['rate']} a second")
STARTS = (_figure("ready", "warm_ready_s"), _figure("each start", "each_s"))
W1 = (
    _figure("output tokens/s", "output_throughput"),
    _figure("ours / its", "ours_over_this"),
    _figure("TTFT p50, ms", "median_ttft_ms"),
    _figure("TPOT p50, ms", "median_tpot_ms"),
    _figure("normalised, ms", "mean_normalized_latency_ms"),
    _figure("`/health` p50, ms", "health_p50_ms"),
    _figure("most, ms", "health_max_ms"),
)
RATES = (
    _figure("output tokens/s", "output_throughput"),
    _figure("goodput, requests/s", "request_goodput"),
    _figure("TTFT p50, ms", "median_ttft_ms"),
    _figure("p99, ms", "p99_ttft_ms"),
    _figure("TPOT p50, ms", "median_tpot_ms"),
    _figure("p99, ms", "p99_tpot_ms"),
    _figure("normalised, ms", "mean_normalized_latency_ms"),
    _figure("others, cores", "others_cores"),
)
BESIDE = (
    _figure("ITL p50, ms", "median_itl_ms"),
    _figure("longest, ms", "longest_itl_ms"),
    _figure("TTFT of the prompts, ms", "prompt_ttft_ms"),
    _figure("output tokens/s", "output_throughput"),
)
STREAMS = (
    _figure("completed", "completed"),
    _figure("failed", "failed"),
    _figure("output tokens/s", "output_throughput"),
    _figure("`/health` most, ms", "health_max_ms"),
)


def tables() -> str:
    """A section for each dtype that has been measured."""
    return "\n\n".join(map(_section, load_results("servers_*"))) or "Nothing measured yet."


def _section(content: dict[str, Any]) -> str:
    result = content["result"]
    rates = [
        row | {"rate": rate} for rate, rows in result["rates"].items() for row in _of_servers(rows)
    ]
    limits = ", ".join(f"{name.upper()} {ms:,g} ms" for name, ms in result["goodput"].items())
    parts = [
        f"`{present(content['command'])}`, {result['dtype']}, {content['date']}, "
        f"{machine_in_words(content['machine'])}, commit {content['versions']['commit']}.",
        "A warm start, in seconds until `/health` is 200:",
        table((SERVER, *STARTS), _of_servers(result["start"])),
        "W1, 32 requests at once, over HTTP:",
        table((SERVER, *W1), _of_servers(result["W1"])),
        f"W1's lengths as Poisson arrivals. Goodput counts requests within {limits}:",
        table((RATE, SERVER, *RATES), rates),
        f"{DECODING} streams, while two prompts of {LONG_PROMPT:,} tokens come:",
        table((SERVER, *BESIDE), _of_servers(result["beside_prompts"])),
        f"{result['streams']:,} streams at once, 8 tokens in and 8 out:",
        table((SERVER, *STREAMS), _of_servers(result["open_streams"])),
    ]
    return "\n\n".join(parts)


def _of_servers(rows: dict[str, Any]) -> list[dict[str, Any]]:
    return [row | {"server": TITLES[name]} for name, row in rows.items()]
