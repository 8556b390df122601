"""The kernel puzzles: checks pass on the solutions, and say of typical mistakes what is wrong."""

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from exercises.checking import Wrong
from exercises.kernels import splits as splits_puzzle
from exercises.kernels.groups import DIM, GROUP, ROWS
from exercises.kernels.launch import Launch, whole
from exercises.kernels.solutions import decode, double, gather, groups, outer, row_sums, tail
from exercises.kernels.watching import watch
from tests.meta.trees import ROOT

FOLDER = ROOT / "exercises" / "kernels"
NAMES = sorted(path.stem for path in (FOLDER / "solutions").glob("[a-z]*.py"))
HELPERS = {"launch", "watching", "examining"}


def test_each_puzzle_has_a_solution_and_is_listed_in_one_order() -> None:
    assert {path.stem for path in FOLDER.glob("[a-z]*.py")} - HELPERS == set(NAMES)
    listed = import_module("exercises.kernels").__doc__ or ""
    order = re.findall(r"\w+", listed.partition("In this order:")[2].partition(".")[0])
    page = (ROOT / "docs" / "tutorial" / "kernel-puzzles.md").read_text("utf-8")
    assert re.findall(r"^\| `exercises\.kernels\.(\w+)`", page, re.MULTILINE) == order
    assert sorted(order) == NAMES
    for number, name in enumerate(order, 1):
        said = import_module(f"exercises.kernels.{name}").__doc__ or ""
        assert said.startswith(f"Kernel puzzle {number}: ")
        assert said.rstrip().endswith(f"Run it: python -m exercises.kernels.{name}")


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_is_right(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = import_module(f"exercises.kernels.solutions.{name}").ANSWER
    assert import_module(f"exercises.kernels.{name}").check(answer) is True
    assert capsys.readouterr().out == "Right.\n"


GIVEN = {
    "double": "Not written yet: `kernel`",
    "outer": "program (1, 0) is given part 2 of a on axis 0. That begins at 4, but the axis has 4",
    "tail": "x has 10 elements, and the last sum is NaN: the mask is forgotten",
    "row_sums": "program (0, 1) writes out[0], which an earlier program has written. That is a",
    "gather": "program 4 reads pool at 977 of axis 0, which has 5",
    "tokens": "read from the block of its first one",
    "groups": "program 1 reads q at 6 of axis 0, which has 6",
    "online": "the old sums are not rescaled",
    "decode": "Not written yet: `kernel`",
    "splits": "each part counts the same",
}
"""What is said of each puzzle as it is given."""


@pytest.mark.parametrize("name", NAMES)
def test_the_given_kernel_is_said_to_be_wrong(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert import_module(f"exercises.kernels.{name}").check() is False
    said = capsys.readouterr().out
    assert said.startswith("Not ") and GIVEN[name] in said


def test_a_puzzle_is_run_as_its_first_lines_say() -> None:
    command = [sys.executable, "-m", "exercises.kernels.double"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    line = "Not written yet: `kernel`. Replace its line `raise NotImplementedError`.\n"
    assert done.stdout == line and done.stderr == ""
    assert line.strip() in (ROOT / "docs" / "tutorial" / "kernel-puzzles.md").read_text("utf-8")


def with_kernel(launch: Callable[..., Launch], kernel: Callable[..., Any]) -> Any:
    """The launch of a solution with another kernel."""
    return lambda *arrays: replace(launch(*arrays), kernel=kernel)


def with_specs(launch: Callable[..., Launch], **specs: Any) -> Any:
    return lambda *arrays: replace(launch(*arrays), **specs)


def doubles_nothing(x_ref: Any, out_ref: Any) -> None:
    out_ref[...] = x_ref[...]


def doubles_in_vain(x_ref: Any, out_ref: Any) -> None:
    out_ref = 2 * x_ref[...]  # noqa: F841


def doubles_and_returns(x_ref: Any, out_ref: Any) -> Any:
    return 2 * x_ref[...]


def doubles_its_argument(x_ref: Any, out_ref: Any) -> None:
    x_ref[...] = 2 * x_ref[...]


def doubles_too_far(x_ref: Any, out_ref: Any) -> None:
    for i in range(5):
        out_ref[i] = 2 * x_ref[i]


def sums_all(x_ref: Any, out_ref: Any) -> None:
    position = 4 * pl.program_id(0) + jnp.arange(4)
    out_ref[...] = jnp.sum(jnp.where(position <= 10, x_ref[...], 0), keepdims=True)


def sums_full_parts(n: int) -> Callable[[Any, Any], None]:
    def kernel(x_ref: Any, out_ref: Any) -> None:
        full = 4 * pl.program_id(0) + 4 <= n
        out_ref[...] = jnp.where(full, jnp.sum(x_ref[...], keepdims=True), 0)

    return kernel


def overwrites_halves(x_ref: Any, out_ref: Any) -> None:
    out_ref[...] = x_ref[...].sum(axis=1)


def adds_to_what_is_there(x_ref: Any, out_ref: Any) -> None:
    out_ref[...] += x_ref[...].sum(axis=1)


def gathers_by_number(pool_ref: Any, table_ref: Any, length_ref: Any, out_ref: Any) -> None:
    i = pl.program_id(0)
    exists = i < length_ref[0]
    out_ref[...] = jnp.where(exists, pool_ref[jnp.where(exists, i % 5, 0)], 0.0)


def gathers_when(pool_ref: Any, table_ref: Any, length_ref: Any, out_ref: Any) -> None:
    """Right for the rows that exist; the others are never written."""
    i = pl.program_id(0)

    @pl.when(i < length_ref[0])
    def _() -> None:
        out_ref[...] = pool_ref[table_ref[i]]


def group_kernel(
    read_masked: bool, write_masked: bool, kv_head: Callable[[Any], Any], *, clamped: bool = False
) -> Any:
    def kernel(q_ref: Any, k_ref: Any, out_ref: Any) -> None:
        g, row = pl.program_id(0), jnp.arange(ROWS)
        exists, head = row < GROUP, g * GROUP + row
        place = jnp.broadcast_arrays(jnp.minimum(head, 5)[:, None], jnp.arange(DIM)[None])
        mask = jnp.broadcast_to(exists[:, None], (ROWS, DIM)) if read_masked else None
        query = plt.load(q_ref.at[tuple(place)], mask=mask, other=0.0 if read_masked else None)
        found = (query * k_ref[kv_head(g)][None]).sum(axis=1)
        head = jnp.minimum(head, 5) if clamped else head
        plt.store(out_ref.at[head], found, mask=exists if write_masked else None)

    return kernel


def softmax_kernel(
    *, sum_shrinks: bool, values_shrink: bool, divides: bool = True, subtracts: bool = True
) -> Any:
    def kernel(s_ref: Any, v_ref: Any, out_ref: Any) -> None:
        def step(i: Any, state: Any) -> Any:
            top, total, out = state
            scores, values = s_ref[pl.ds(4 * i, 4)], v_ref[pl.ds(4 * i, 4)]
            new = jnp.maximum(top, scores.max()) if subtracts else jnp.float32(0)
            shrink, weights = jnp.exp(top - new), jnp.exp(scores - new)
            total = total * (shrink if sum_shrinks else 1) + weights.sum()
            return new, total, out * (shrink if values_shrink else 1) + (weights * values).sum()

        first = jnp.float32(-jnp.inf if subtracts else 0)
        start = (first, jnp.float32(0), jnp.float32(0))
        _, total, out = jax.lax.fori_loop(0, 3, step, start)
        out_ref[...] = jnp.full(1, out / total if divides else out)

    return kernel


def attend_kernel(
    *, scores: bool = True, values: bool = True, whole_table: bool = False, scale: bool = True,
    key: int = 0, value: int = 1,
) -> Any:  # fmt: skip
    """The solution with one thing left out."""

    def kernel(q_ref: Any, cache_ref: Any, tables_ref: Any, lengths_ref: Any, out_ref: Any) -> None:
        s, size = pl.program_id(0), cache_ref.shape[2]
        length = lengths_ref[s]
        query = q_ref[...] / (q_ref.shape[0] ** 0.5 if scale else 1)

        def add_block(j: Any, state: Any) -> Any:
            top, total, out = state
            block = tables_ref[s, j]
            keys, held = cache_ref[key, block], cache_ref[value, block]
            seen = j * size + jnp.arange(size) < length
            found = jnp.where(seen, keys @ query, -jnp.inf) if scores else keys @ query
            held = jnp.where(seen[:, None], held, 0) if values else held
            new = jnp.maximum(top, found.max())
            shrink, weights = jnp.exp(top - new), jnp.exp(found - new)
            return new, total * shrink + weights.sum(), out * shrink + weights @ held

        start = (jnp.float32(-jnp.inf), jnp.float32(0), jnp.zeros(q_ref.shape))
        blocks = tables_ref.shape[1] if whole_table else (length + size - 1) // size
        _, total, out = jax.lax.fori_loop(0, blocks, add_block, start)
        out_ref[...] = out / total

    return kernel


def merge_kernel(*, largest: bool = True, zeroed: bool = True, power: bool = True) -> Any:
    def kernel(parts_ref: Any, lse_ref: Any, out_ref: Any) -> None:
        logs = lse_ref[...]
        weights = jnp.exp(logs - (logs.max() if largest else 0)) if power else logs
        weights = weights[:, None]
        held = jnp.where(weights > 0, parts_ref[...], 0) if zeroed else parts_ref[...]
        out_ref[...] = (weights * held).sum(axis=0) / weights.sum()

    return kernel


def token_kernel(*, own_block: bool = True, slots_from_zero: bool = False) -> Any:
    def kernel(pool_ref: Any, table_ref: Any, length_ref: Any, out_ref: Any) -> None:
        first = 6 * pl.program_id(0)
        position = first + jnp.arange(6)
        seen = position < length_ref[0]
        column = position // 4 if own_block else jnp.full(6, first // 4)
        block = plt.load(table_ref.at[column], mask=seen, other=0)
        slot = (position - first if slots_from_zero else position) % 4
        place = jnp.broadcast_arrays(block[:, None], slot[:, None], jnp.arange(2)[None])
        mask = jnp.broadcast_to(seen[:, None], (6, 2))
        out_ref[...] = plt.load(pool_ref.at[tuple(place)], mask=mask, other=0.0)

    return kernel


def halves(index_map: Callable[..., Any]) -> pl.BlockSpec:
    return pl.BlockSpec((2,), index_map)


of_row = pl.BlockSpec((1,), lambda r, half: (r,))
online = import_module("exercises.kernels.solutions.online")
splits = import_module("exercises.kernels.solutions.splits")
tokens = import_module("exercises.kernels.solutions.tokens")
TWO_HALVES: dict[str, Any] = {
    "grid": (4, 2),
    "in_specs": [pl.BlockSpec((1, 4), lambda r, half: (r, half))],
    "out_specs": of_row,
}
WRONG = [
    ("double", with_kernel(double.launch, doubles_nothing), "nothing was doubled"),
    ("double", with_kernel(double.launch, doubles_in_vain), "out[0] is written by no program"),
    ("double", with_kernel(double.launch, doubles_and_returns), "the kernel returns a value"),
    ("double", with_kernel(double.launch, doubles_its_argument), "writes to x, an argument"),
    ("double", with_kernel(double.launch, doubles_too_far), "reads x at 4 of axis 0, which has 4"),
    ("double", with_specs(double.launch, grid=(2,)), "out[8] is written by no program"),
    ("double", with_specs(double.launch, grid=(4,)), "is given part 3 of x on axis 0"),
    ("double", lambda x: None, "launch returned None"),
    ("double", lambda x: 2 * x, "launch returned a ndarray"),
    ("double", with_specs(double.launch, out_shape=(4,)), "the result has shape (12,)"),
    ("double", with_specs(double.launch, in_specs=[]), "there are 1 arguments, but 0 in_specs"),
    (
        "outer",
        with_specs(outer.launch, in_specs=[halves(lambda i, j: (i,)), halves(lambda i, j: (i,))]),
        "another part of b than its own",
    ),
    (
        "outer",
        with_specs(outer.launch, in_specs=[halves(lambda i, j: (0,)), halves(lambda i, j: (j,))]),
        "all programs were given part 0 of a",
    ),
    (
        "outer",
        with_specs(outer.launch, out_specs=pl.BlockSpec((2, 2), lambda i, j: (i, 0))),
        "program (0, 1) writes out[0, 0], which an earlier program has written",
    ),
    (
        "outer",
        with_specs(outer.launch, out_specs=pl.BlockSpec((2,), lambda i, j: (i,))),
        "out has 2 axes, but its BlockSpec has a part of 1",
    ),
    ("tail", with_kernel(tail.launch, sums_all), "the last sum is NaN"),
    ("tail", lambda x: replace(tail.launch(x), kernel=sums_full_parts(len(x))), "sum is 0"),
    (
        "row_sums",
        lambda x: replace(row_sums.launch(x), kernel=overwrites_halves, **TWO_HALVES),
        "program (0, 1) writes out[0], which an earlier program has written. That is a race",
    ),
    (
        "row_sums",
        with_specs(row_sums.launch, in_specs=[pl.BlockSpec((1, 4), lambda r: (r, 0))]),
        "the first half of each row only",
    ),
    (
        "row_sums",
        lambda x: replace(row_sums.launch(x), kernel=adds_to_what_is_there),
        "program 0 reads out[0] before anything was written there",
    ),
    ("gather", with_kernel(gather.launch, gathers_by_number), "the table says which row"),
    ("gather", with_kernel(gather.launch, gathers_when), "out[4, 0] is written by no program"),
    ("tokens", with_kernel(tokens.launch, token_kernel(own_block=False)), "of its first one"),
    ("tokens", with_kernel(tokens.launch, token_kernel(slots_from_zero=True)), "position % 4"),
    (
        "groups",
        with_kernel(groups.launch, group_kernel(True, False, lambda g: g)),
        "program 1 writes out at 6 of axis 0, which has 6",
    ),
    (
        "groups",
        with_kernel(groups.launch, group_kernel(True, False, lambda g: g, clamped=True)),
        "program 1 writes out[3], which an earlier program has written",
    ),
    (
        "groups",
        with_kernel(groups.launch, group_kernel(False, True, lambda g: 0)),
        "all heads were multiplied with KV head 0",
    ),
    (
        "online",
        with_kernel(online.launch, softmax_kernel(sum_shrinks=False, values_shrink=True)),
        "the sum of weights is not rescaled",
    ),
    (
        "online",
        with_kernel(online.launch, softmax_kernel(sum_shrinks=True, values_shrink=False)),
        "the weighted sum of values is not rescaled",
    ),
    (
        "online",
        with_kernel(
            online.launch, softmax_kernel(sum_shrinks=True, values_shrink=True, divides=False)
        ),
        "not divided by the sum of weights",
    ),
    (
        "online",
        with_kernel(
            online.launch, softmax_kernel(sum_shrinks=False, values_shrink=False, subtracts=False)
        ),
        "a number became too large for exp()",
    ),
    ("decode", with_kernel(decode.launch, attend_kernel(scores=False)), "weights are in the sum"),
    (
        "decode",
        with_kernel(decode.launch, attend_kernel(scores=False, values=False)),
        "mask them with -inf.\n",
    ),
    ("decode", with_kernel(decode.launch, attend_kernel(values=False)), "mask the values, too"),
    ("decode", with_kernel(decode.launch, attend_kernel(scale=False)), "divided by sqrt(D)"),
    ("decode", with_kernel(decode.launch, attend_kernel(value=0)), "keys are taken for values"),
    ("decode", with_kernel(decode.launch, attend_kernel(key=1, value=0)), "are exchanged"),
    (
        "decode",
        with_kernel(decode.launch, attend_kernel(whole_table=True)),
        "program 1 reads cache at 977 of axis 1, which has 6",
    ),
    ("splits", with_kernel(splits.launch, merge_kernel(largest=False)), "exp(200) is infinite"),
    ("splits", with_kernel(splits.launch, merge_kernel(zeroed=False)), "holds NaN: its weight"),
    ("splits", with_kernel(splits.launch, merge_kernel(power=False)), "a part is exp(lse)"),
]


@pytest.mark.parametrize(("name", "answer", "hint"), WRONG)
def test_typical_mistakes_are_named(
    name: str, answer: Any, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert import_module(f"exercises.kernels.{name}").check(answer) is False
    said = capsys.readouterr().out
    assert said.startswith("Not yet: ") and hint in said


def test_what_the_interpreter_hides_is_seen() -> None:
    """The races and the reads too far that a check refuses give a result in the interpreter."""
    racing = Launch(overwrites_halves, (4, 2), TWO_HALVES["in_specs"], of_row, out_shape=(4,))
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    assert racing.run(x).tolist() == x[:, 4:].sum(1).tolist()
    with pytest.raises(Wrong, match="a race"):
        watch(racing, {"x": x})

    def too_far(x_ref: Any, out_ref: Any) -> None:
        out_ref[0] = x_ref[9]

    beyond = Launch(too_far, (1,), [whole()], whole(), out_shape=(1,))
    assert beyond.run(np.arange(4, dtype=np.float32)).tolist() == [3.0]
    with pytest.raises(Wrong, match="reads x at 9 of axis 0, which has 4"):
        watch(beyond, {"x": np.arange(4, dtype=np.float32)})


def test_a_watched_kernel_computes_what_an_interpreted_one_does() -> None:
    """Or a kernel could be refused, or let through, for what it does not do."""
    rng = np.random.default_rng(0)
    parts, lse = rng.random((2, 4, 3), np.float32), rng.random((2, 4), np.float32)
    seen: list[np.ndarray] = []

    def kernel(parts_ref: Any, lse_ref: Any, out_ref: Any) -> None:
        splits.launch(parts, lse).kernel(parts_ref, lse_ref, out_ref)
        seen.append(np.asarray(out_ref[...]))

    launch = replace(splits.launch(parts, lse), kernel=kernel)
    watch(launch, {"parts": parts, "lse": lse})
    found = splits.launch(parts, lse).run(parts, lse)
    np.testing.assert_allclose(np.stack(seen), found, rtol=1e-6)
    assert splits_puzzle.check(splits.launch)
