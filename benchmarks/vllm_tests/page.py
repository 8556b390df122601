"""The saved tests as Markdown, for docs/vllm-tests.md."""

from collections import Counter
from typing import Any

from benchmarks.markdown import Column, table, words
from benchmarks.report import load_result, machine_in_words
from benchmarks.vllm_examples.page import cell, path_column


def tables() -> str:
    """What passes in each file, what fails and why, and which files are not run and why."""
    saved = load_result("vllm_tests")
    found = saved["result"]
    files, where = found["files"], machine_in_words(saved["machine"])
    passed, failed = sum(one["passed"] for one in files), sum(len(one["failed"]) for one in files)
    whose = f"{len(files)} files of vLLM {found['vllm']}'s `tests/`"
    said = f"{passed} of {passed + failed} tests pass, in {whose} ({where}, {saved['date']})."
    counts = [
        path_column("file"),
        Column("pass", "passed"),
        Column("fail", lambda row: len(row["failed"])),
        Column("skipped", lambda row: len(row["skipped"])),
    ]
    not_run = [{"path": path, "why": why} for path, why in found["not_run"].items()]
    return "\n\n".join(
        [
            said,
            table(counts, files),
            table([words("test that fails", "test"), BECAUSE], _failing(files)),
            table([path_column("file that is not run"), BECAUSE], not_run),
        ]
    )


BECAUSE = words("because", lambda row: cell(row["why"]))


def _failing(files: list[dict[str, Any]]) -> list[dict[str, str]]:
    """A row for each test function and reason: parameters are counted."""
    rows: Counter[tuple[str, str]] = Counter()
    for one in files:
        name = one["path"].removeprefix("entrypoints/")
        for test in one["failed"]:
            rows[f"{name}::{test['test'].partition('[')[0]}", test["reason"]] += 1
    return [
        {"test": f"`{test}`{f', {count} times' if count > 1 else ''}", "why": reason}
        for (test, reason), count in rows.items()
    ]
