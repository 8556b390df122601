"""Results of `benchmarks.compare` as Markdown, for docs/compare.md and the README's headlines."""

from typing import Any

from benchmarks.compare import quantised_peers as quantised
from benchmarks.compare.environments import OURS, PEERS
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
    peers = [name for name in PEERS if name != OURS and any(name in r["peers"] for r in results)]
    titles = "".join(f" over {PEERS[name].title} |" for name in peers)
    rows = [f"| | jax-engine, tokens/s |{titles} of the bound |"]
    rows.append("|---|" + "---:|" * (len(peers) + 2))
    for result in results:
        speed, bound = result["peers"][OURS]["output_tokens_per_s"], result["bound_tokens_per_s"]
        ratios = (result["peers"].get(name, {}).get("ours_over_this") for name in peers)
        cells = [f"{result['workload']}, {result['dtype']}", f"{speed:,.0f}"]
        cells += ["" if ratio is None else f"{ratio:.2f}" for ratio in ratios]
        cells.append(f"{100 * speed / bound:.0f} %" if bound else "")
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


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
    machine = content["machine"]
    head = "| | output tokens/s | ours / its | MB a token | of its read bound | memory, MiB |"
    rows = [head, "|---|---:|---:|---:|---:|---:|"]
    for one in content["result"].values():
        for name, row in one["peers"].items():
            cells = _quantised_cells(row, one["workload"])
            title = f"{one['workload']}, {one['file']}: {quantised.PEERS[name].title}"
            rows.append(f"| {title} | {' | '.join(cells)} |")
    said = (
        f"{content['date']}, {machine['cores']} cores ({machine['cpu']}), load average "
        f"{machine['load_average'][0]}, commit {content['versions']['commit']}."
    )
    return said + "\n\n" + "\n".join(rows)


def _quantised_cells(row: Result, workload: str) -> list[str]:
    """Only a single stream (W2) has the read bound: a batch shares what it reads."""
    if "failure" in row:
        return ["failed", "", "", "", ""]
    speed = row["output_tokens_per_s"]
    share = f"{100 * speed / row['read_bound_tokens_per_s']:.0f} %" if workload == "W2" else ""
    over = f"{row['ours_over_this']:.2f}" if "ours_over_this" in row else ""
    size = f"{row['bytes_per_token'] / 1e6:.0f}"
    busy = " (busy)" if row["busy"] else ""
    return [f"{speed:,.1f}{busy}", over, size, share, f"{row['peak_memory_mib']:,}"]


def _section(content: dict[str, Any]) -> str:
    result, machine = content["result"], content["machine"]
    bound = result["bound_tokens_per_s"]
    lines = [
        f"### {result['workload']}, {result['dtype']}",
        f"{_what(result)}: {result['requests']} request{'s' * (result['requests'] > 1)}, "
        f"{result['input_tokens']:,} "
        f"tokens in, {result['output_tokens']:,} out. {content['date']}, {machine['cores']} cores "
        f"({machine['cpu']}), load average {machine['load_average'][0]}, commit "
        f"{content['versions']['commit']}." + (f" Bound: {bound:,} tokens/s." if bound else ""),
        _speeds(result["peers"], bound),
        _latencies(result["peers"]),
        *_failures(result["peers"]),
    ]
    return "\n\n".join(lines)


def _what(result: Result) -> str:
    """The workload in words, with the names of the data set and of the process as they are."""
    words: str = result["what"]
    words = words.replace("sharegpt", "ShareGPT").replace("poisson", "Poisson")
    return words[0].upper() + words[1:]


def _ran(peers: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(PEERS[name].title, row) for name, row in peers.items() if "failure" not in row]


def _speeds(peers: dict[str, Any], bound: float | None) -> str:
    head = "| | output tokens/s | each pass | ours / its | of bound | equal tokens | others |"
    rows = [head, "|---|---:|---|---:|---:|---|---:|"]
    for title, row in _ran(peers):
        speed = row["output_tokens_per_s"]
        share = f"{100 * speed / bound:.0f} %" if bound else ""
        same = row.get("tokens")
        equal = (
            f"{same['equal_tokens_percent']} %, {same['equal_requests']} of {same['requests']} "
            "requests entirely"
            if same
            else ""
        )
        over = f"{row['ours_over_this']:.2f}" if "ours_over_this" in row else ""
        others = f"{row['others_cores']:.2f}" + (" (busy)" if row["busy"] else "")
        passes = " ".join(f"{float(one):,.1f}" for one in row["each_pass_tokens_per_s"].split())
        cells = [title, f"{speed:,.1f}", passes, over, share, equal, others]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _latencies(peers: dict[str, Any]) -> str:
    columns = {
        "first token p50": "time_to_first_token_p50_ms",
        "p99": "time_to_first_token_p99_ms",
        "per output token p50": "time_per_output_token_p50_ms",
        "p99 ": "time_per_output_token_p99_ms",
        "normalised": "normalised_latency_ms",
    }
    head = f"| milliseconds | {' | '.join(columns)} | memory, MiB | ready, s | first token, s |"
    rows = [head, "|---|" + "---:|" * (len(columns) + 3)]
    for title, row in _ran(peers):
        cells = [f"{row[key]:,.1f}" for key in columns.values()]
        start = row["start_up"]
        cells += [f"{row['peak_memory_mib']:,}", str(start["ready_s"]), str(start["first_token_s"])]
        rows.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _failures(peers: dict[str, Any]) -> list[str]:
    return [
        f"{PEERS[name].title} did not run: `{row['failure']}`"
        for name, row in peers.items()
        if "failure" in row
    ]
