"""The saved figures about guesses as Markdown, for the chapter on them."""

from typing import Any

from benchmarks.markdown import Column, Row, measured, named, with_sentence, words
from benchmarks.report import load_result

TIMES_AS_FAST = Column("times as fast", "speed_ratio", "{:.2f}")
TOKENS_A_STEP = Column("tokens a step", "tokens_per_step", "{:.2f}")


def split(result: dict[str, Any], *parts: str) -> list[dict[str, Any]]:
    """Rows whose names are parts with commas between them."""
    return [
        {**dict(zip(parts, row["name"].split(", "), strict=True)), **row} for row in named(result)
    ]


def forced_table() -> str:
    """Each guess right with a given probability, one request at a time."""
    saved = load_result("speculation")
    limits = saved["result"]["machine"]
    said = measured(saved, "One request at a time. ", commit=True) + (
        f" The machine read {limits['read_bandwidth_gb_per_s']:.0f} GB/s and multiplied matrices "
        f"of float32 at {limits['matrix_rate_gflop_per_s']:.0f} GFLOP/s."
    )
    columns = [
        words("weights"),
        Column("plain, tokens/s", "plain_tokens_per_s", "{:.0f}"),
        Column("with guesses", "tokens_per_s", "{:.0f}"),
        TIMES_AS_FAST,
        TOKENS_A_STEP,
    ]
    return with_sentence(said, columns, named(saved["result"]["forced"]))


def texts_table() -> str:
    """Times as fast as without guesses, by kind of text, drafter and temperature."""
    saved = load_result("speculation")
    rows = split(saved["result"]["texts"], "drafter", "text", "temperature")
    for one in split(saved["result"]["random"], "drafter", "batch"):
        row = {"drafter": one["drafter"], "text": f"random tokens, {one['batch']}"}
        rows.append(row | {"temperature": "1.0", "speed_ratio": one["median_speed_ratio"]})
    columns = [
        words("drafter", "drafter"),
        words("text", "text"),
        Column("temperature", lambda row: row["temperature"].removeprefix("temperature ")),
        Column("right guesses", lambda row: row.get("accepted_percent"), "{:.0f} %"),
        Column("tokens a step", lambda row: row.get("tokens_per_step"), "{:.2f}"),
        TIMES_AS_FAST,
    ]
    said = measured(saved, "The default model, one request at a time. ", commit=True)
    return with_sentence(said, columns, rows)


def peers_table() -> str:
    """Three engines with and without prompt lookup."""
    saved = load_result("speculation_peers")
    kinds = {k: v for k, v in saved["result"].items() if k not in ("failures", "versions")}
    names = dict.fromkeys(name for found in kinds.values() for name in found)
    rows = [
        {"name": name} | {kind: found.get(name) for kind, found in kinds.items()}
        for name in sorted(names, key=lambda one: (one.split()[0] != "ours", one))
    ]
    columns = [Column(kind, lambda row, kind=kind: _speed(row[kind])) for kind in kinds]
    what = (
        "Medians over the requests: tokens a second, and times as fast as the same engine "
        "without guesses. "
    )
    return with_sentence(measured(saved, what, commit=True), [words(""), *columns], rows)


def _speed(row: Row | None) -> str:
    if row is None:
        return "failed"
    ratio = row.get("guesses_speed_ratio")
    return f"{row['decode_tokens_per_s']:.0f}" + ("" if ratio is None else f" ({ratio:.2f}x)")


def host_table() -> str:
    """Microseconds of the host's, by drafter and number of requests."""
    saved = load_result("speculation_host")
    columns = [
        words("drafter", "drafter"),
        Column("running", lambda row: row["running"].removesuffix(" running")),
        Column("to find guesses, µs", "propose_us", "{:.0f}"),
        Column("a step, µs", "total_us", "{:.0f}"),
        Column("tokens a step", "tokens_per_step", "{:.1f}"),
        Column("µs a token", "us_per_token", "{:.1f}"),
    ]
    said = measured(saved, "The model is stubbed out, and all guesses are right. ", commit=True)
    return with_sentence(said, columns, split(saved["result"], "drafter", "running"))


def draft_model_table() -> str:
    """Times as fast as without a draft model, by dtype, draft model and kind of text."""
    saved = load_result("speculation_draft_model")

    def right(row: Row) -> str:
        made = row["tokens_per_step"] > 1
        return f"{row['accepted_percent']:.0f} %" if made else "none made"

    columns = [
        *(words(name, name) for name in ("target", "draft model", "text")),
        Column("right guesses", right),
        TOKENS_A_STEP,
        TIMES_AS_FAST,
    ]
    said = measured(saved, "Greedy, one request at a time. ", commit=True)
    return with_sentence(said, columns, split(saved["result"], "target", "draft model", "text"))


def coupling_table() -> str:
    """How often a guess is right, by how it is drawn."""
    saved = load_result("coupling")
    rules = ("greedy", "same number", "race", "rejection")
    columns = [words("the draft model has"), *(Column(rule, rule, "{:.3f}") for rule in rules)]
    positions = min(one["positions"] for one in saved["result"].values())
    said = measured(saved, f"Means over {positions} positions. ", commit=True)
    return with_sentence(said, columns, named(saved["result"]))
