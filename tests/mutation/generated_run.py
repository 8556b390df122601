"""Judges the generated bugs, folder by folder, and takes up where it stopped."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.mutation import verdicts
from tests.mutation.children import in_new_process
from tests.mutation.generated import Generated, all_generated
from tests.mutation.judging import Job, Judged, judge, tests_for, with_tests
from tests.mutation.reach import Reach, measure
from tests.mutation.verdicts import Verdict, Verdicts

# Where a folder's bugs are looked for.
PAIRS = (
    "tests/properties/test_block_manager_pair.py",
    "tests/properties/test_scheduler_pair.py",
    "tests/properties/test_overlap.py",
)
# Without a device, and so without compiling: most bugs of the engine are noticed there.
CHEAP = (
    "tests/properties/test_engine_shell.py",
    "tests/properties/test_client_view.py",
    "tests/simulation",
)
TESTS = {
    "core": ("tests/core", *PAIRS),
    "tokenization": ("tests/tokenization", "tests/engine/test_llm_text.py", CHEAP[1]),
    "sampling": ("tests/sampling", "tests/engine/test_logprobs.py", CHEAP[1]),
    "engine": ("tests/engine", "tests/compat", "tests/guided", *CHEAP),
    "serving": (
        "tests/serving/fields",
        "tests/serving/tools",
        "tests/serving/test_anthropic.py",
        "tests/serving/test_app.py",
        "tests/serving/test_client_fields.py",
        "tests/serving/test_error_names.py",
        "tests/serving/test_in_flight.py",
        "tests/properties/test_client_view.py",
        "tests/serving/test_odd_bodies.py",
        "tests/serving/test_offers.py",
        "tests/serving/test_output_fields.py",
        "tests/serving/test_pairs.py",
        "tests/serving/test_parts.py",
        "tests/serving/test_pooling_api.py",
        "tests/serving/test_request_log.py",
        "tests/serving/test_responses_api.py",
        "tests/serving/test_server_ends.py",
        "tests/serving/test_state.py",
        "tests/serving/test_stats_log.py",
        "tests/serving/test_text_encoder.py",
        "tests/serving/test_unsound_requests.py",
    ),
    "families": ("tests/models",),
    "compat": ("tests/compat",),
    "commands": ("tests/commands", "tests/bench", "tests/serving/fields/test_file_fields.py"),
    "worker": ("tests/worker", "tests/engine", "tests/models/test_decoder.py", *CHEAP),
}
# Verdicts are written after so many, so that little is lost.
KEEP_AFTER = 20


@dataclass(frozen=True)
class Options:
    """How bugs are judged.

    Attributes:
        at_once: Processes.
        budget_s: How long the tests that reach a bug may take together, without it.
        again: Kinds of verdict ("killed", "survived") to try again.
        only: Bugs whose name has this.
        tests: Paths of tests, if not the folder's own.
        draw: How many of a folder's bugs, drawn by `seed`; None: all.
    """

    at_once: int = 1
    budget_s: float = 20.0
    again: frozenset[str] = frozenset()
    only: str = ""
    tests: list[str] | None = None
    draw: int | None = None
    seed: str = ""


def run_all(folders: list[str], options: Options) -> bool:
    """Judges the bugs of each folder, in a process of its own.

    Returns:
        Whether one survives that the verdicts did not name as a survivor.
    """
    lost = [bug for folder in folders for bug in in_new_process(run, folder, options)]
    print("\n".join([f"{len(lost)} survivors that were not known", *lost]))
    return bool(lost)


def run(folder: str, options: Options) -> list[str]:
    """Judges the bugs of a folder that have no verdict that still holds; its new survivors."""
    mutants = all_generated([folder])
    known = verdicts.read(folder)
    asked = [one for one in mutants if options.only in str(one)]
    if options.draw is not None:
        asked = _drawn(asked, options.draw, f"{folder} {options.seed}")
        print(f"{folder}: drawn by --draw {options.draw} --seed {options.seed!r}", flush=True)
    todo = [one for one in asked if _is_open(one, known, options.again)]
    print(f"{folder}: {len(todo)} of {len(mutants)} generated bugs to judge", flush=True)
    survivors = {str(name) for name, one in known.items() if one.kind == "survived"}
    if not todo:
        return []

    def work(items: list[pytest.Item]) -> None:
        jobs = _jobs(todo, known, measure(items, options.at_once), options.budget_s)
        for number, one in enumerate(judge(jobs, items, options.at_once), 1):
            _note(known, one)
            print(f"{number}/{len(todo)} {one.kind}: {one.mutant} {one.by}", flush=True)
            if number % KEEP_AFTER == 0:
                verdicts.write(folder, known, mutants)
        verdicts.write(folder, known, mutants)

    with_tests(options.tests or TESTS[folder], work)
    print(dict(Counter(one.kind for one in known.values())), flush=True)
    now = (str(name) for name, one in known.items() if one.kind == "survived")
    return [bug for bug in now if bug not in survivors]


def _drawn(asked: list[Generated], count: int, seed: str) -> list[Generated]:
    """Some of the bugs, in their order: the same ones as long as the folder is what it is."""
    chosen = set(random.Random(seed).sample(range(len(asked)), min(count, len(asked))))
    return [one for i, one in enumerate(asked) if i in chosen]


def _is_open(mutant: Generated, known: Verdicts, again: frozenset[str]) -> bool:
    verdict = known.get(mutant.name)
    return verdict is None or verdict.key != mutant.function.key or verdict.kind in again


def _jobs(
    todo: list[Generated], known: Verdicts, reaches: list[Reach], budget_s: float
) -> Iterator[Job]:
    """The test that noticed a bug before is asked first."""
    for mutant in todo:
        if mutant.compiled() == mutant.function.compiled():
            continue
        tests = tests_for(mutant, reaches, budget_s)
        if mutant.name in known:
            by = known[mutant.name].by
            tests.sort(key=lambda one: not by.startswith(one.test))
        yield Job(mutant, tests)


def _note(known: Verdicts, judged: Judged) -> None:
    mutant = judged.mutant
    assert isinstance(mutant, Generated)
    before = known.get(mutant.name)
    by = judged.by
    if judged.kind == "broken":
        return
    if judged.kind == "survived" and before and before.kind == "equivalent":
        by = f"{by}; was equivalent before the function changed: {before.by}"
    change = verdicts.change_of(mutant)
    known[mutant.name] = Verdict(mutant.function.key, judged.kind, by, change)
