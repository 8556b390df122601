"""The saved figures about guesses as Markdown, for the chapter on them."""

from typing import Any

from benchmarks.report import load_result, machine_in_words


def _said(saved: dict[str, Any], what: str) -> str:
    commit = saved["versions"]["commit"]
    return f"{what} {saved['date']}, {machine_in_words(saved['machine'])}, commit {commit}."


def forced_table() -> str:
    """Each guess right with a given probability, one request at a time."""
    saved = load_result("speculation")
    rows = [
        "| weights | plain, tokens/s | with guesses | times as fast | tokens a step |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, one in saved["result"]["forced"].items():
        rows.append(
            f"| {name} | {one['plain_tokens_per_s']:.0f} | {one['tokens_per_s']:.0f} "
            f"| {one['speed_ratio']:.2f} | {one['tokens_per_step']:.2f} |"
        )
    limits = saved["result"]["machine"]
    said = _said(saved, "One request at a time.")
    said += (
        f" The machine read {limits['read_bandwidth_gb_per_s']:.0f} GB/s and multiplied matrices "
        f"of float32 at {limits['matrix_rate_gflop_per_s']:.0f} GFLOP/s."
    )
    return said + "\n\n" + "\n".join(rows)


def texts_table() -> str:
    """Times as fast as without guesses, by kind of text, drafter and temperature."""
    saved = load_result("speculation")
    rows = [
        "| drafter | text | temperature | right guesses | tokens a step | times as fast |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for name, one in saved["result"]["texts"].items():
        drafter, kind, temperature = name.split(", ")
        rows.append(
            f"| {drafter} | {kind} | {temperature.removeprefix('temperature ')} "
            f"| {one['accepted_percent']:.0f} % | {one['tokens_per_step']:.2f} "
            f"| {one['speed_ratio']:.2f} |"
        )
    for name, one in saved["result"]["random"].items():
        drafter, batch = name.split(", ")
        rows.append(
            f"| {drafter} | random tokens, {batch} | 1.0 | | | {one['median_speed_ratio']:.2f} |"
        )
    return _said(saved, "The default model, one request at a time.") + "\n\n" + "\n".join(rows)


def peers_table() -> str:
    """Three engines with and without prompt lookup."""
    saved = load_result("speculation_peers")
    result = saved["result"]
    kinds = [kind for kind in result if kind not in ("failures", "versions")]
    names = list(dict.fromkeys(name for kind in kinds for name in result[kind]))
    rows = ["| | " + " | ".join(kinds) + " |", "|---|" + "---:|" * len(kinds)]
    for name in sorted(names, key=lambda one: (one.split()[0] != "ours", one)):
        cells = [_cell(result[kind].get(name)) for kind in kinds]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    said = _said(saved, "Tokens a second, and times as fast as the same engine without guesses.")
    return said + "\n\n" + "\n".join(rows)


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return "failed"
    speed = f"{row['decode_tokens_per_s']:.0f}"
    ratio = row.get("guesses_speed_ratio")
    return speed if ratio is None else f"{speed} ({ratio:.2f}x)"


def host_table() -> str:
    """Microseconds of the host's, by drafter and number of requests."""
    saved = load_result("speculation_host")
    rows = [
        "| drafter | running | to find guesses, µs | a step, µs | tokens a step | µs a token |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, one in saved["result"].items():
        drafter, running = name.removesuffix(" running").split(", ")
        rows.append(
            f"| {drafter} | {running} | {one['propose_us']:.0f} | {one['total_us']:.0f} "
            f"| {one['tokens_per_step']:.1f} | {one['us_per_token']:.1f} |"
        )
    return (
        _said(saved, "The model is stubbed out, and all guesses are right.")
        + "\n\n"
        + "\n".join(rows)
    )


def draft_model_table() -> str:
    """Times as fast as without a draft model, by dtype, draft model and kind of text."""
    saved = load_result("speculation_draft_model")
    rows = [
        "| target | draft model | text | right guesses | tokens a step | times as fast |",
        "|---|---|---|---:|---:|---:|",
    ]
    for name, one in saved["result"].items():
        target, draft, kind = name.split(", ")
        right = f"{one['accepted_percent']:.0f} %" if one["tokens_per_step"] > 1 else "none made"
        rows.append(
            f"| {target} | {draft} | {kind} | {right} "
            f"| {one['tokens_per_step']:.2f} | {one['speed_ratio']:.2f} |"
        )
    return _said(saved, "Greedy, one request at a time.") + "\n\n" + "\n".join(rows)


def coupling_table() -> str:
    """How often a guess is right, by how it is drawn."""
    saved = load_result("coupling")
    rules = ("greedy", "same number", "race", "rejection")
    rows = [f"| the draft model has | {' | '.join(rules)} |", "|---|" + "---:|" * len(rules)]
    for name, one in saved["result"].items():
        rows.append(f"| {name} | {' | '.join(f'{one[rule]:.3f}' for rule in rules)} |")
    positions = min(one["positions"] for one in saved["result"].values())
    return _said(saved, f"Means over {positions} positions.") + "\n\n" + "\n".join(rows)
