"""Tables of the simulated replicas, for docs/serving.md."""

from typing import Any

from benchmarks.markdown import Column, named, words
from benchmarks.markdown import table as lines
from benchmarks.report import load_result


def result() -> dict[str, Any]:
    found: dict[str, Any] = load_result("replicas")["result"]
    return found


def most() -> str:
    """The greatest number of replicas, as the result has it."""
    found: str = max(result()["by_replicas"]["both"], key=int)
    return found


def figure(rule: str, count: str, what: str) -> float:
    """A figure of so many replicas."""
    found: float = result()["by_replicas"][rule][count][what]
    return found


def goodput_left(rule: str) -> float:
    """Goodput of a replica among the most, in percent of that of one alone."""
    ends = [figure(rule, count, "goodput_per_s") for count in (most(), "1")]
    return 100 * ends[0] / ends[1]


def rules_table() -> str:
    """A row for each rule: goodput by replicas; then what the most of them did."""
    curves = result()["by_replicas"]
    last = most()
    first, *others = sorted(curves["both"], key=int)
    columns = [words("rule"), _goodput("good answers/s at", first)]
    columns += [_goodput("at", count) for count in others]
    columns += [
        Column("cached", (last, "cached_percent"), "{:.0f} %"),
        Column("busiest over mean", (last, "busiest_over_mean"), "{:.1f}"),
        Column("first token, p95", (last, "first_token_p95_s"), "{:.2f} s"),
    ]
    return lines(columns, named(curves))


def excess_table() -> str:
    """A row for each excess that `both` allows."""
    found = result()["by_excess"]["both"]
    rows = [{**found[excess], "excess": excess} for excess in sorted(found, key=int)]
    columns = [
        Column("`max_excess`", "excess"),
        Column("good answers/s", "goodput_per_s", "{:.2f}"),
        Column("cached", "cached_percent", "{:.0f} %"),
        Column("busiest over mean", "busiest_over_mean", "{:.1f}"),
        Column("per token, p95", "per_token_p95_ms", "{:.0f} ms"),
    ]
    return lines(columns, rows)


def assumptions() -> str:
    """What was assumed, a line each."""
    return _listed(result()["assumptions"])


def expected() -> str:
    """What was expected before it ran, a line each."""
    return _listed(result()["expected"])


def longer_apart_percent() -> float:
    """How far the goodput of the longer runs is from that of the others, at most."""
    found = result()
    pairs = [
        (one["goodput_per_s"], found["by_replicas"][rule][count]["goodput_per_s"])
        for rule, runs in found["longer"].items()
        for count, one in runs.items()
    ]
    return max(100 * abs(float(longer) / float(shorter) - 1) for longer, shorter in pairs)


def _goodput(what: str, count: str) -> Column:
    return Column(f"{what} {int(count):,}", (count, "goodput_per_s"), "{:.2f}")


def _listed(lines: list[str]) -> str:
    return "\n".join(f"- {one}" for one in lines)
