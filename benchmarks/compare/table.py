"""Results of `benchmarks.compare` as Markdown, for docs/compare.md and the README's headlines."""

from collections.abc import Callable
from typing import Any

from benchmarks.compare import quantised_peers as quantised
from benchmarks.compare.environments import OURS, PEERS
from benchmarks.markdown import Column, Row, table, with_sentence, words
from benchmarks.report import load_results

Result = dict[str, Any]


def headline(result: Result) -> dict[str, str]:
    """The README's row: our tokens a second, and over each peer's."""
    peers = result["peers"]
    ratios = [
        f"{row['ours_over_this']:.2f}x {PEERS[name].title}"
        for name, row in peers.items()
        if "ours_over_this" in row
    ]
    speed = peers[OURS].get("output_tokens_per_s", "failed")
    figure = f"{speed} output tokens/s; " + (", ".join(ratios) or "no peer ran")
    return {f"{result['workload']} in {result['dtype']}: {result['what']}": figure}


def summary() -> str:
    """A row for each workload and dtype: our tokens a second, and over each peer's."""
    results = [content["result"] for content in load_results("compare_*")]
    names = [name for name in PEERS if name != OURS and any(name in r["peers"] for r in results)]
    columns = [
        words("", lambda row: f"{row['workload']}, {row['dtype']}"),
        Column("jax-engine, tokens/s", ("peers", OURS, "output_tokens_per_s"), "{:,.0f}"),
        *(Column(f"over {PEERS[name].title}", _over(name), "{:.2f}") for name in names),
        Column("of the bound", _share_of_bound, "{:.0f} %"),
    ]
    return table(columns, results)


def _over(name: str) -> Callable[[Row], Any]:
    return lambda row: row["peers"].get(name, {}).get("ours_over_this")


def _share_of_bound(row: Row) -> float | None:
    speed, bound = row["peers"][OURS]["output_tokens_per_s"], row["bound_tokens_per_s"]
    return 100 * speed / bound if bound else None


def compare_tables() -> str:
    """A section for each workload and dtype that has been measured."""
    return "\n\n".join(map(_section, load_results("compare_*"))) or "Nothing measured yet."


def quantised_table(processor: str = "") -> str:
    """A row for each engine on each quantised file and workload, of quantised_files.json.

    Args:
        processor: the end of the name of another such file.
    """
    found = load_results(quantised.NAME + processor)
    if not found:
        return "Nothing measured yet."
    content = found[0]
    rows = [
        {"title": f"{one['workload']}, {one['file']}: {quantised.PEERS[name].title}"}
        | {"single": one["workload"] == "W2"}  # alone has the read bound: a batch shares reading
        | row
        for one in content["result"].values()
        for name, row in one["peers"].items()
    ]
    columns = [
        words("", "title"),
        Column("output tokens/s", _speed_or_failed),
        Column("ours / its", lambda row: row.get("ours_over_this"), "{:.2f}"),
        Column("MB a token", _of_ran(lambda row: row["bytes_per_token"] / 1e6), "{:.0f}"),
        Column("of its read bound", _of_ran(_share_of_reading), "{:.0f} %"),
        Column("memory, MiB", _of_ran(lambda row: row["peak_memory_mib"]), "{:,}"),
    ]
    return with_sentence(_where(content), columns, rows)


def _where(content: Row) -> str:
    machine = content["machine"]
    return (
        f"{content['date']}, {machine['cores']} cores ({machine['cpu']}), load average "
        f"{machine['load_average'][0]}, commit {content['versions']['commit']}."
    )


def _of_ran(cell: Callable[[Row], Any]) -> Callable[[Row], Any]:
    """Nothing is told of a peer that failed."""
    return lambda row: None if "failure" in row else cell(row)


def _speed_or_failed(row: Row) -> str:
    return "failed" if "failure" in row else _speed(row)


def _speed(row: Row) -> str:
    return f"{row['output_tokens_per_s']:,.1f}" + (" (busy)" if row["busy"] else "")


def _share_of_reading(row: Row) -> float | None:
    share: float = row["output_tokens_per_s"] / row["read_bound_tokens_per_s"]
    return 100 * share if row["single"] else None


def _section(content: dict[str, Any]) -> str:
    result = content["result"]
    bound = result["bound_tokens_per_s"]
    ran = [row | {"bound": bound, "title": PEERS[name].title}
           for name, row in result["peers"].items() if "failure" not in row]  # fmt: skip
    speeds = [column for column in SPEEDS if any(column.of(row) for row in ran)]  # none is empty
    lines = [
        f"### {result['workload']}, {result['dtype']}",
        f"{_what(result)}{_counts(result)}. "
        + _where(content)
        + (f" Bound: {bound:,} tokens/s." if bound else ""),
        table(speeds, ran),
        table(LATENCIES, ran),
        *_failures(result["peers"]),
    ]
    return "\n\n".join(lines)


def _what(result: Result) -> str:
    """The workload in words, with the names of the data set and of the process as they are."""
    words: str = result["what"]
    words = words.replace("sharegpt", "ShareGPT").replace("poisson", "Poisson")
    return words[0].upper() + words[1:]


def _counts(result: Result) -> str:
    """All tokens of several requests; of a single one the workload's words say them."""
    tokens = f"{result['input_tokens']:,} tokens in, {result['output_tokens']:,} out"
    return f": {result['requests']} requests, {tokens}" if result["requests"] > 1 else ""


def _equal_tokens(row: Row) -> str | None:
    same = row.get("tokens")
    if not same:
        return None
    return (
        f"{same['equal_tokens_percent']} %, {same['equal_requests']} of {same['requests']} "
        "requests entirely"
    )


def _share(row: Row) -> float | None:
    return 100 * row["output_tokens_per_s"] / row["bound"] if row["bound"] else None


def _passes(row: Row) -> str:
    return " ".join(f"{float(one):,.1f}" for one in row["each_pass_tokens_per_s"].split())


SPEEDS = (
    words("", "title"),
    Column("output tokens/s", "output_tokens_per_s", "{:,.1f}"),
    Column("each pass", _passes),
    Column("ours / its", lambda row: row.get("ours_over_this"), "{:.2f}"),
    Column("of bound", _share, "{:.0f} %"),
    words("equal tokens", _equal_tokens),
    Column("others", lambda row: f"{row['others_cores']:.2f}" + " (busy)" * row["busy"]),
)
LATENCIES = (
    words("milliseconds", "title"),
    Column("first token p50", "time_to_first_token_p50_ms", "{:,.1f}"),
    Column("p99", "time_to_first_token_p99_ms", "{:,.1f}"),
    Column("per output token p50", "time_per_output_token_p50_ms", "{:,.1f}"),
    Column("p99", "time_per_output_token_p99_ms", "{:,.1f}"),
    Column("normalised", "normalised_latency_ms", "{:,.1f}"),
    Column("memory, MiB", "peak_memory_mib", "{:,}"),
    Column("ready, s", ("start_up", "ready_s"), "{:.2f}"),
    Column("first token, s", ("start_up", "first_token_s"), "{:.2f}"),
)


def _failures(peers: dict[str, Any]) -> list[str]:
    return [
        f"{PEERS[name].title} did not run: `{row['failure']}`"
        for name, row in peers.items()
        if "failure" in row
    ]
