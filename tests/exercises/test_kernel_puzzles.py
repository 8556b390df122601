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
from exercises.kernels.examining import POISONS
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
        assert said.rstrip().endswith(f"Run it: .venv/bin/python -m exercises.kernels.{name}")
        source = (FOLDER / f"{name}.py").read_text("utf-8")
        assert source.endswith('if __name__ == "__main__":\n    raise SystemExit(not check())\n')


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
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
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    line = "Not written yet: `kernel`. Replace its line `raise NotImplementedError`.\n"
    assert (done.stdout, done.stderr, done.returncode) == (line, "", 1)
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


def sums(counted: Callable[[Any, Any], Any], *, keepdims: bool = True) -> Any:
    """The answer to `tail` in which `counted` gets the part, and which of it exists."""

    def answer(x: np.ndarray) -> Launch:
        def kernel(x_ref: Any, out_ref: Any) -> None:
            exists = 4 * pl.program_id(0) + jnp.arange(4) < len(x)
            out_ref[...] = jnp.sum(counted(x_ref[...], exists), keepdims=keepdims)

        return replace(tail.launch(x), kernel=kernel)

    return answer


def sums_what_is_no_nan(x_ref: Any, out_ref: Any) -> None:
    out_ref[...] = jnp.nansum(x_ref[...], keepdims=True)


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


def gathers(chosen: Callable[[Any, Any, Any], Any]) -> Any:
    """A kernel whose index is safe; `chosen` gets the row, the table's entry, and if i exists."""

    def kernel(pool_ref: Any, table_ref: Any, length_ref: Any, out_ref: Any) -> None:
        i = pl.program_id(0)
        entry, exists = table_ref[i], i < length_ref[0]
        row = pool_ref[jnp.clip(entry, 0, pool_ref.shape[0] - 1)]
        out_ref[...] = chosen(row, entry, exists)

    return kernel


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
    *, sum_shrinks: bool = True, values_shrink: bool = True, divides: bool = True,
    subtracts: bool = True, first: float = -np.inf,
) -> Any:  # fmt: skip
    def kernel(s_ref: Any, v_ref: Any, out_ref: Any) -> None:
        def step(i: Any, state: Any) -> Any:
            top, total, out = state
            scores, values = s_ref[pl.ds(4 * i, 4)], v_ref[pl.ds(4 * i, 4)]
            new = jnp.maximum(top, scores.max()) if subtracts else jnp.float32(0)
            shrink, weights = jnp.exp(top - new), jnp.exp(scores - new)
            total = total * (shrink if sum_shrinks else 1) + weights.sum()
            return new, total, out * (shrink if values_shrink else 1) + (weights * values).sum()

        start = (jnp.float32(first if subtracts else 0), jnp.float32(0), jnp.float32(0))
        _, total, out = jax.lax.fori_loop(0, 3, step, start)
        out_ref[...] = jnp.full(1, out / total if divides else out)

    return kernel


def attend_kernel(
    *, scores: bool = True, values: bool = True, whole_table: bool = False, scale: bool = True,
    key: int = 0, value: int = 1, first: float = -np.inf, hidden: float = -np.inf,
    multiplies: bool = False, weights_only: bool = False,
) -> Any:  # fmt: skip
    """The solution with one thing left out.

    Args:
        first: The largest score before the first.
        hidden: The score of a slot behind the last token.
        multiplies: Whether values are multiplied with the mask.
        weights_only: Whether weights are masked, and scores are not.
    """

    def kernel(q_ref: Any, cache_ref: Any, tables_ref: Any, lengths_ref: Any, out_ref: Any) -> None:
        s, size = pl.program_id(0), cache_ref.shape[2]
        length = lengths_ref[s]
        query = q_ref[...] / (q_ref.shape[0] ** 0.5 if scale else 1)

        def add_block(j: Any, state: Any) -> Any:
            top, total, out = state
            block = tables_ref[s, j]
            keys, held = cache_ref[key, block], cache_ref[value, block]
            seen = j * size + jnp.arange(size) < length
            found = keys @ query
            found = jnp.where(seen, found, hidden) if scores and not weights_only else found
            zeroed = held * seen[:, None] if multiplies else jnp.where(seen[:, None], held, 0)
            held = zeroed if values else held
            new = jnp.maximum(top, found.max())
            shrink, weights = jnp.exp(top - new), jnp.exp(found - new)
            weights = jnp.where(seen, weights, 0) if weights_only else weights
            return new, total * shrink + weights.sum(), out * shrink + weights @ held

        start = (jnp.float32(first), jnp.float32(0), jnp.zeros(q_ref.shape))
        blocks = tables_ref.shape[1] if whole_table else (length + size - 1) // size
        _, total, out = jax.lax.fori_loop(0, blocks, add_block, start)
        out_ref[...] = out / total

    return kernel


def merge_kernel(
    *, largest: bool = True, zeroed: bool = True, power: bool = True, above: float = -np.inf,
    held: Callable[[Any, Any], Any] = lambda parts, weights: jnp.where(weights > 0, parts, 0),
) -> Any:  # fmt: skip
    """The solution with one thing left out; `above` is where the search for the largest begins."""

    def kernel(parts_ref: Any, lse_ref: Any, out_ref: Any) -> None:
        logs, parts = lse_ref[...], parts_ref[...]
        top = jnp.maximum(logs.max(), above)
        weights = jnp.exp(logs - (top if largest else 0)) if power else logs
        weights = weights[:, None]
        parts = held(parts, weights) if zeroed else parts
        out_ref[...] = (weights * parts).sum(axis=0) / weights.sum()

    return kernel


def token_kernel(
    *, own_block: bool = True, slots_from_zero: bool = False, by_entry: bool = False,
    masked: bool = True, multiplies: bool = False,
) -> Any:  # fmt: skip
    """The solution with one thing otherwise; with `by_entry` any entry of the pool counts."""

    def kernel(pool_ref: Any, table_ref: Any, length_ref: Any, out_ref: Any) -> None:
        first = 6 * pl.program_id(0)
        position = first + jnp.arange(6)
        seen = position < length_ref[0]
        column = position // 4 if own_block else jnp.full(6, first // 4)
        block = plt.load(table_ref.at[column], mask=None if by_entry else seen, other=0)
        if by_entry:
            seen = (block >= 0) & (block < pool_ref.shape[0])
            block = jnp.where(seen, block, 0)
        slot = (position - first if slots_from_zero else position) % 4
        place = jnp.broadcast_arrays(block[:, None], slot[:, None], jnp.arange(2)[None])
        mask = jnp.broadcast_to(seen[:, None], (6, 2))
        if masked:
            found = plt.load(pool_ref.at[tuple(place)], mask=mask, other=0.0)
        else:
            found = plt.load(pool_ref.at[tuple(place)])
        out_ref[...] = found * mask if multiplies else found

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
    ("tail", with_kernel(tail.launch, sums_what_is_no_nan), "in this run 3 is what lies behind"),
    ("tail", sums(lambda x, _: jnp.where(jnp.isnan(x), 0, x)), "compare positions, and not what"),
    ("tail", sums(lambda x, _: jnp.where(jnp.isfinite(x), x, 0)), "out[2] is 25.0000, but should"),
    ("tail", sums(lambda x, _: jnp.where(x > 10, 0, x)), "the last sum is NaN"),
    ("tail", sums(lambda x, exists: x * exists), "A GPU multiplies, and 0 times NaN is NaN"),
    ("tail", sums(lambda x, exists: x * exists.astype(jnp.float32)), "choose with `jnp.where`"),
    (
        "tail",
        sums(lambda x, exists: jnp.where(exists, x, 0), keepdims=False),
        "a value of shape () is written to out, where the place has shape (1,)",
    ),
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
    (
        "gather",
        with_kernel(
            gather.launch,
            gathers(lambda row, entry, _: jnp.where((entry >= 0) & (entry < 5), row, 0.0)),
        ),
        "compare the position with the length, and not the entry with the pool",
    ),
    (
        "gather",
        with_kernel(gather.launch, gathers(lambda row, _, exists: row * exists)),
        "hold nan: choose 0 with `jnp.where`. 0 times NaN is NaN",
    ),
    ("tokens", with_kernel(tokens.launch, token_kernel(own_block=False)), "of its first one"),
    ("tokens", with_kernel(tokens.launch, token_kernel(by_entry=True)), "the length were read"),
    (
        "tokens",
        with_kernel(tokens.launch, token_kernel(masked=False, multiplies=True)),
        "hold nan: give the load a mask and `other`",
    ),
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
    (
        "online",
        with_kernel(online.launch, softmax_kernel(first=0.0)),
        "below -900 in this run: the largest so far begins with -inf",
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
        "program 1 reads cache at 977 of axis 1, which has 7",
    ),
    (
        "decode",
        with_kernel(decode.launch, attend_kernel(multiplies=True)),
        "0 times NaN is NaN: mask the values, too",
    ),
    (
        "decode",
        with_kernel(decode.launch, attend_kernel(weights_only=True)),
        "hold 1e+30: mask by position, scores with -inf before the largest is taken",
    ),
    (
        "decode",
        with_kernel(decode.launch, attend_kernel(first=0.0)),
        "below -100 in this run: the largest so far begins with -inf",
    ),
    (
        "decode",
        with_kernel(decode.launch, attend_kernel(hidden=-100.0)),
        "and a masked score is -inf",
    ),
    ("splits", with_kernel(splits.launch, merge_kernel(largest=False)), "exp(200) is infinite"),
    (
        "splits",
        with_kernel(splits.launch, merge_kernel(above=0.0)),
        "exp(-200) is 0 in float32: subtract the largest lse",
    ),
    (
        "splits",
        with_kernel(
            splits.launch, merge_kernel(held=lambda parts, _: jnp.where(jnp.isnan(parts), 0, parts))
        ),
        "holds inf. It can be any number, so choose by lse",
    ),
    (
        "splits",
        with_kernel(splits.launch, merge_kernel(held=lambda parts, weights: parts * (weights > 0))),
        "0 times NaN is NaN. Set its mean to 0 first",
    ),
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


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("tail", sums(lambda x, exists: jnp.where(exists, x, 0))),
        ("gather", with_kernel(gather.launch, gathers(lambda row, _, i: jnp.where(i, row, 0.0)))),
        ("tokens", with_kernel(tokens.launch, token_kernel())),
        ("online", with_kernel(online.launch, softmax_kernel())),
        ("decode", with_kernel(decode.launch, attend_kernel())),
        ("splits", with_kernel(splits.launch, merge_kernel())),
    ],
)
def test_kernels_without_a_mistake_are_right(name: str, answer: Any) -> None:
    """So what is refused above is refused for its mistake alone."""
    assert import_module(f"exercises.kernels.{name}").check(answer) is True


def test_the_interpreter_lets_a_product_with_a_mask_through() -> None:
    """XLA makes a choice of it, so NaN behind the end of x shows in a run under watch alone."""
    x = np.arange(1, 11, dtype=np.float32)
    multiplying: Launch = sums(lambda part, exists: part * exists)(x)
    assert multiplying.run(x).tolist() == [10.0, 26.0, 19.0]
    assert np.isnan(watch(multiplying, {"x": x}).result[2])
    assert watch(multiplying, {"x": x}, 3.0).result[2] == 19.0
    assert watch(multiplying, {"x": x}).anything == ["what lies behind the end of x"]


def test_a_masked_load_without_other_gives_anything() -> None:
    """In Triton it is undefined, so a kernel must not count on 0."""

    def loads(x_ref: Any, out_ref: Any) -> None:
        out_ref[...] = plt.load(x_ref.at[jnp.arange(4)], mask=jnp.arange(4) < 3)

    launch = Launch(loads, (1,), [whole()], whole(), out_shape=(4,))
    x = np.arange(4, dtype=np.float32)
    for poison in POISONS:
        seen = watch(launch, {"x": x}, poison)
        np.testing.assert_array_equal(seen.result, np.array([0, 1, 2, poison], np.float32))
        assert seen.anything == ["what a load of x without `other` gives for False"]


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
