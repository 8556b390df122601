"""The exercises: checks pass on the solutions, and tell what is wrong with anything else."""

import inspect
import json
import numbers
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import exercises.top_p
from exercises import copy_on_write, hanging_scheduler
from exercises.checking import Wrong, verdict
from exercises.crossing_hits import Adapter
from exercises.prefix_chain import hash_of
from exercises.solutions import (
    allocator,
    grouped_product,
    online_softmax,
    prefix_chain,
    top_p,
    verification,
)
from exercises.solutions import copy_on_write as cow
from scripts.exercise_table import TASKS, order
from tests.exercises import wrong_in_scheduling
from tests.meta.trees import ROOT

NAMES = sorted(path.stem for path in (ROOT / "exercises" / "solutions").glob("[a-z]*.py"))


def test_each_exercise_has_a_solution_and_is_listed() -> None:
    files = {path.stem for path in (ROOT / "exercises").glob("[a-z]*.py")} - {
        "checking",
        "variants",
    }
    assert files == set(NAMES)
    assert set(TASKS) == set(NAMES)
    text = import_module("exercises").__doc__ or ""
    listed = re.findall(r"^    (?:short|middle|long): (.*)$", text, re.MULTILINE)
    assert ", ".join(listed).split(", ") == order()


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_is_right(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = import_module(f"exercises.solutions.{name}").ANSWER
    assert import_module(f"exercises.{name}").check(answer) is True
    assert capsys.readouterr().out == "Right.\n"


@pytest.mark.parametrize("name", NAMES)
def test_the_unsolved_file_says_what_to_do(name: str) -> None:
    command = [sys.executable, "-m", f"exercises.{name}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    bugs = {"hanging_scheduler": "hangs", "crossing_hits": "computed with another adapter: got 4"}
    assert bugs.get(name, "Not written yet") in done.stdout and done.stderr == ""
    assert done.returncode == 1


def test_a_right_answer_ends_with_0(tmp_path: Path) -> None:
    """It stands in the file where a reader writes it."""
    given = Path(exercises.top_p.__file__).read_text("utf-8")
    solved = given.replace(
        inspect.getsource(exercises.top_p.keep_top_p), inspect.getsource(top_p.keep_top_p)
    )
    path = tmp_path / "top_p.py"
    path.write_text(solved, "utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("Right.\n", "", 0)


def keep_with_numpys_help(probabilities: Sequence[float], p: float) -> list[int]:
    return list(map(int, np.zeros(3).reshape(2, 2)))


def keep_with_jsons_help(probabilities: Sequence[float], p: float) -> list[int]:
    return list(json.loads(str(p) + "}"))


def keep_with_what_is_not_implemented(probabilities: Sequence[float], p: float) -> list[int]:
    return [numbers.Complex.__abs__(p)]  # type: ignore[arg-type, list-item]


@pytest.mark.parametrize(
    "answer", [keep_with_numpys_help, keep_with_jsons_help, keep_with_what_is_not_implemented]
)
def test_an_error_is_shown_at_the_answers_own_line(
    answer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not at the line of a package that raised it, which may raise NotImplementedError, too."""
    assert exercises.top_p.check(answer) is False
    said = capsys.readouterr().out
    source, first = inspect.getsourcelines(answer)
    line = source[-1].strip()
    assert said.startswith("Not yet: your code raised ")
    assert f"(line {first + len(source) - 1} of {answer.__name__}: `{line}`)" in said


@pytest.mark.parametrize(("words", "shown"), [("why?", "why?"), ("so", "so."), ("so.", "so.")])
def test_a_sentence_has_one_mark_at_its_end(
    words: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def test() -> None:
        raise Wrong(words)

    assert verdict(test) is False
    assert capsys.readouterr().out == f"Not yet: {shown}\n"


class Queue(allocator.Allocator):
    def allocate(self) -> int:
        self.free_blocks.reverse()
        block = super().allocate()
        self.free_blocks.reverse()
        return block


class FreesAtOnce(allocator.Allocator):
    def free(self, block: int) -> None:
        self.ref_counts[block] = min(self.ref_counts[block], 1)
        super().free(block)


class FreesTwice(allocator.Allocator):
    def free(self, block: int) -> None:
        self.ref_counts[block] = max(self.ref_counts[block], 1)
        super().free(block)


class AnotherError(allocator.Allocator):
    def allocate(self) -> int:
        self.ref_counts[self.free_blocks[-1]] = 1
        return self.free_blocks.pop()


def append_in_place(pool: Any, table: list[int], position: int, word: str) -> None:
    logical, offset = divmod(position, 4)
    if logical == len(table):
        table.append(pool.take())
    pool.words[table[logical]][offset] = word


def append_empty(pool: Any, table: list[int], position: int, word: str) -> None:
    before = list(table)
    cow.append(pool, table, position, word)
    if len(before) == len(table) and before != table:
        pool.words[table[-1]][:3] = [""] * 3


def append_always_copies(pool: Any, table: list[int], position: int, word: str) -> None:
    logical, offset = divmod(position, 4)
    if logical == len(table):
        table.append(pool.take())
    else:
        pool.share(table[logical])
        cow.append(pool, table, position, word)
        pool.let_go(table[logical])
    pool.words[table[logical]][offset] = word


def append_aliases(pool: Any, table: list[int], position: int, word: str) -> None:
    before = list(table)
    cow.append(pool, table, position, word)
    if len(before) == len(table) and before != table:
        pool.words[before[-1]] = pool.words[table[-1]]


def append_and_keep(pool: Any, table: list[int], position: int, word: str) -> None:
    before = list(table)
    cow.append(pool, table, position, word)
    if len(before) == len(table) and before != table:
        pool.share(before[-1])


def attend_naively(q: np.ndarray, blocks: Iterator[Any]) -> Any:
    total, weighted = 0.0, np.zeros_like(q)
    for keys, values in blocks:
        weights = np.exp(keys @ q)
        total, weighted = total + weights.sum(), weighted + weights @ values
    return weighted / total


def attend_without_rescaling(q: np.ndarray, blocks: Iterator[Any]) -> Any:
    largest, total, weighted = -np.inf, 0.0, np.zeros_like(q)
    for keys, values in blocks:
        largest = max(largest, (keys @ q).max())
        weights = np.exp(keys @ q - largest)
        total, weighted = total + weights.sum(), weighted + weights @ values
    return weighted / total


def attend_by_block(q: np.ndarray, blocks: Iterator[Any]) -> Any:
    return np.mean([online_softmax.attend(q, iter([block])) for block in blocks], axis=0)


def attend_to_all_at_once(q: np.ndarray, blocks: Iterator[Any]) -> Any:
    return online_softmax.attend(q, iter(list(blocks)))


def attend_from_zero(q: np.ndarray, blocks: Iterator[Any]) -> Any:
    keys, values = map(np.concatenate, zip(*((k + 0, v + 0) for k, v in blocks), strict=True))
    weights = np.exp(keys @ q - max(0.0, (keys @ q).max()))
    return weights @ values / weights.sum()


def attend_without_return(q: np.ndarray, blocks: Iterator[Any]) -> Any:
    online_softmax.attend(q, blocks)


class LooksAtPromptsOnly(hanging_scheduler.Scheduler):
    def accepts(self, request: hanging_scheduler.Request) -> bool:
        return self._blocks_for(request) < self.num_blocks


class ForgetsTheSpareBlock(hanging_scheduler.Scheduler):
    def accepts(self, request: hanging_scheduler.Request) -> bool:
        tokens = request.prompt + request.max_tokens - 1
        return -(-tokens // self.block_size) <= self.num_blocks


class CountsTheLastToken(hanging_scheduler.Scheduler):
    def accepts(self, request: hanging_scheduler.Request) -> bool:
        tokens = request.prompt + request.max_tokens
        return -(-tokens // self.block_size) + 1 <= self.num_blocks


class LooksAtFreeBlocks(hanging_scheduler.Scheduler):
    def accepts(self, request: hanging_scheduler.Request) -> bool:
        tokens = request.prompt + request.max_tokens - 1
        return -(-tokens // self.block_size) + 1 <= self._free


def own_tokens_only(tokens: Sequence[int], size: int) -> list[int]:
    return [hash_of(None, tokens[i : i + size]) for i in range(0, len(tokens) - size + 1, size)]


def with_the_rest(tokens: Sequence[int], size: int) -> list[int]:
    return prefix_chain.chain([*tokens, *[0] * (-len(tokens) % size)], size)


def all_known(tokens: Sequence[int], size: int, known: Any) -> int:
    return size * sum(one in known for one in prefix_chain.chain(tokens, size))


def without_the_boundary(probabilities: Sequence[float], p: float) -> list[int]:
    order = sorted(range(len(probabilities)), key=lambda i: -probabilities[i])
    masses = np.cumsum([probabilities[i] for i in order])
    return [i for i, mass in zip(order, masses, strict=True) if mass < p]


def without_ties(probabilities: Sequence[float], p: float) -> list[int]:
    order = sorted(range(len(probabilities)), key=lambda i: -probabilities[i])
    masses = np.cumsum([0.0, *(probabilities[i] for i in order)])
    return [i for i, mass in zip(order, masses[:-1], strict=True) if mass < p]


def one_too_many(probabilities: Sequence[float], p: float) -> list[int]:
    return top_p.keep_top_p(probabilities, p + 1e-9)


def accept_one_too_many(guesses: Sequence[int], drawn: Sequence[int], end: int) -> list[int]:
    count = len(verification.accept(guesses, drawn, end))
    return [*drawn[: count + 1]]


def accept_without_the_correction(
    guesses: Sequence[int], drawn: Sequence[int], end: int
) -> list[int]:
    right = verification.accept(guesses, drawn, end)
    return right if len(right) > len(guesses) else right[:-1]


def accept_all_that_are_equal(guesses: Sequence[int], drawn: Sequence[int], end: int) -> list[int]:
    return [drawn[0], *(b for g, a, b in zip(guesses, drawn, drawn[1:], strict=False) if g == a)]


def accept_behind_the_end(guesses: Sequence[int], drawn: Sequence[int], end: int) -> list[int]:
    return verification.accept(guesses, drawn, -1)


def add_row_by_row(y: np.ndarray, x: np.ndarray, slots: np.ndarray, read: Any) -> np.ndarray:
    rows = [
        grouped_product.add_adapters(y[[i]], x[[i]], slots[[i]], read) for i in range(len(slots))
    ]
    return np.concatenate(rows)


def add_sorted(y: np.ndarray, x: np.ndarray, slots: np.ndarray, read: Any) -> np.ndarray:
    order = np.argsort(slots, kind="stable")
    return grouped_product.add_adapters(y[order], x[order], slots[order], read)


def add_in_place(y: np.ndarray, x: np.ndarray, slots: np.ndarray, read: Any) -> np.ndarray:
    y[:] = grouped_product.add_adapters(y, x, slots, read)
    return y


def add_merged(y: np.ndarray, x: np.ndarray, slots: np.ndarray, read: Any) -> np.ndarray:
    found = y.copy()
    for slot in set(slots.tolist()) - {0}:
        a, b, scaling = read(slot)
        found[slots == slot] += x[slots == slot] @ (scaling * (b @ a)).T
    return found


def add_unscaled(y: np.ndarray, x: np.ndarray, slots: np.ndarray, read: Any) -> np.ndarray:
    return grouped_product.add_adapters(y, x, slots, lambda slot: (*read(slot)[:2], 1.0))


def add_zeros(y: np.ndarray, x: np.ndarray, slots: np.ndarray, read: Any) -> np.ndarray:
    return grouped_product.add_adapters(y, x, slots, read) + 0.0


def add_all_slots(y: np.ndarray, x: np.ndarray, slots: np.ndarray, read: Any) -> np.ndarray:
    for slot in {1, 2, 3} - set(slots.tolist()):
        read(slot)
    return grouped_product.add_adapters(y, x, slots, read)


def add_with_an_adapter_for_all(
    y: np.ndarray, x: np.ndarray, slots: np.ndarray, read: Any
) -> np.ndarray:
    found = y.copy()
    for slot in set(slots.tolist()):
        a, b, scaling = read(slot)
        found[slots == slot] += scaling * (x[slots == slot] @ a.T @ b.T)
    return found


def root_by_name(adapter: Adapter | None, salt: str | None) -> Any:
    return (salt, adapter and adapter.name)


def root_by_weights(adapter: Adapter | None, salt: str | None) -> Any:
    return (salt, adapter and adapter.weights)


def root_without_the_salt(adapter: Adapter | None, salt: str | None) -> Any:
    return salt if adapter is None else (adapter.weights, adapter.scaling)


def root_run_together(adapter: Adapter | None, salt: str | None) -> Any:
    return f"{adapter and adapter.weights}{adapter and adapter.scaling}{salt}"


def fork_that_aliases(pool: Any, table: list[int]) -> list[int]:
    cow.fork(pool, table)
    return table


WRONG = [
    ("allocator", Queue, "order in which they are handed out: got [0, 1, 2]"),
    ("allocator", FreesAtOnce, "got 1, but it should be 0"),
    ("allocator", FreesTwice, "raised nothing, but it should raise DoubleFreeError"),
    ("allocator", AnotherError, "raised IndexError, but it should raise NoBlockError"),
    ("copy_on_write", (fork_that_aliases, cow.append), "fork returned the same list"),
    ("copy_on_write", (lambda pool, table: list(table), cow.append), "got (1, 1)"),
    ("copy_on_write", (cow.fork, append_in_place), "copy it first"),
    ("copy_on_write", (cow.fork, append_empty), "did the copy have all?"),
    ("copy_on_write", (cow.fork, append_and_keep), "the holders of block 1"),
    ("copy_on_write", (cow.fork, append_always_copies), "nobody else holds 7: write in place"),
    ("copy_on_write", (cow.fork, append_aliases), "are the same list"),
    ("online_softmax", attend_naively, "something else than the largest score so far"),
    ("online_softmax", attend_without_rescaling, "are the old sums rescaled"),
    ("online_softmax", attend_by_block, "two blocks"),
    ("online_softmax", lambda q, blocks: 0.0, "has shape ()"),
    ("online_softmax", attend_to_all_at_once, "used after the next one was asked for"),
    ("online_softmax", attend_from_zero, "minus several thousand"),
    ("online_softmax", attend_without_return, "attend returned None"),
    ("hanging_scheduler", LooksAtPromptsOnly, "hangs (swapped"),
    ("hanging_scheduler", ForgetsTheSpareBlock, "hangs (swapped"),
    ("hanging_scheduler", CountsTheLastToken, "it refused prompt=12, max_tokens=1"),
    ("hanging_scheduler", LooksAtFreeBlocks, "count all blocks, not those that are free"),
    ("prefix_chain", (own_tokens_only, prefix_chain.num_known), "what is before counts"),
    ("prefix_chain", (with_the_rest, prefix_chain.num_known), "8 fill two"),
    ("prefix_chain", (prefix_chain.chain, all_known), "one must be left to compute"),
    ("top_p", without_the_boundary, "the second token crosses 0.6, and is kept"),
    ("top_p", without_ties, "the fourth equals it"),
    ("top_p", one_too_many, "reached by the first token alone"),
    ("top_p", lambda probabilities, p: probabilities.index(p), "your code raised ValueError"),
    ("verification", accept_one_too_many, "the first guess is wrong"),
    ("verification", accept_without_the_correction, "the first guess is wrong"),
    ("verification", accept_all_that_are_equal, "right behind a wrong one is worth nothing"),
    ("verification", accept_behind_the_end, "nothing counts behind the end"),
    ("grouped_product", add_row_by_row, "how often the adapter in slot 2 was read: got 3"),
    ("grouped_product", add_sorted, "has other bits"),
    ("grouped_product", add_in_place, "y was changed"),
    ("grouped_product", add_merged, "B A was made"),
    ("grouped_product", add_unscaled, "row 0 is not y + s B (A x)"),
    ("grouped_product", add_zeros, "a row without an adapter has other bits"),
    ("grouped_product", add_all_slots, "the adapters that were read: got [1, 2, 3]"),
    ("grouped_product", add_with_an_adapter_for_all, "slot 0 was read, which has no adapter"),
    ("grouped_product", lambda y, x, slots, read: y[0], "the shape of the result"),
    ("crossing_hits", lambda adapter, salt: adapter, "under two names"),
    ("crossing_hits", root_by_name, "after a name was given to other weights"),
    ("crossing_hits", root_by_weights, "the same weights and another scaling"),
    ("crossing_hits", root_without_the_salt, "with the same adapter and another salt"),
    ("crossing_hits", root_run_together, "scaling 0.55 and salt ''"),
]


@pytest.mark.parametrize(("name", "answer", "hint"), WRONG + wrong_in_scheduling.WRONG)
def test_typical_mistakes_are_named(
    name: str, answer: Any, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check = import_module(f"exercises.{name}").check
    assert check(answer) is False
    said = capsys.readouterr().out
    assert said.startswith("Not yet: ") and hint in said
    assert not any([check(answer, seed) for seed in range(1, 25)])


def test_the_pool_of_the_exercise_counts() -> None:
    pool = copy_on_write.Pool()
    block = pool.take()
    pool.share(block)
    pool.let_go(block)
    assert pool.holders[block] == 1
    pool.let_go(block)
    assert pool.take() == block
