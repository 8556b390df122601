"""The saved tests as Markdown, for docs/vllm-tests.md."""

from collections import Counter
from typing import Any

from benchmarks.report import load_result, machine_in_words
from benchmarks.vllm_examples.page import cell


def tables() -> str:
    """What passes in each file, what fails and why, and which files are not run and why."""
    saved = load_result("vllm_tests")
    found = saved["result"]
    files, where = found["files"], machine_in_words(saved["machine"])
    passed, failed = sum(one["passed"] for one in files), sum(len(one["failed"]) for one in files)
    whose = f"{len(files)} files of vLLM {found['vllm']}'s `tests/`"
    lines = [
        f"{passed} of {passed + failed} tests pass, in {whose} ({where}, {saved['date']}).",
        "",
        "| file | pass | fail | skipped |",
        "|---|---:|---:|---:|",
    ]
    for one in files:
        counts = f"{one['passed']} | {len(one['failed'])} | {len(one['skipped'])}"
        lines.append(f"| `{one['path']}` | {counts} |")
    lines += ["", "| test that fails | because |", "|---|---|", *_failing(files)]
    lines += ["", "| file that is not run | because |", "|---|---|"]
    lines += [f"| `{path}` | {cell(why)} |" for path, why in found["not_run"].items()]
    return "\n".join(lines)


def _failing(files: list[dict[str, Any]]) -> list[str]:
    """A row for each test function and reason: parameters are counted."""
    rows: Counter[tuple[str, str]] = Counter()
    for one in files:
        name = one["path"].removeprefix("entrypoints/")
        for test in one["failed"]:
            rows[f"{name}::{test['test'].partition('[')[0]}", test["reason"]] += 1
    return [
        f"| `{test}`{f', {count} times' if count > 1 else ''} | {cell(reason)} |"
        for (test, reason), count in rows.items()
    ]
