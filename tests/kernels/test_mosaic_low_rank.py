"""What adapters add to products by the kernels for GPUs, interpreted, against NumPy in float64."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jax.experimental.pallas.mosaic_gpu import InterpretGPUParams, force_gpu_interpret_mode

from jax_engine.operations import table, xla
from jax_engine.weights.low_rank import A, B, LowRank, halves_of, rows_that_choose, sort_rows
from pallas_kernels.device import interpreting
from pallas_kernels.low_rank import add_low_rank, has_kernel, make_tiles
from pallas_kernels.mosaic.low_rank_plan import (
    ALIGNMENT,
    ROWS,
    STAGES,
    chunk_of,
    panels_of,
    rows_of,
    tiles_of,
)
from tests.kernels.low_rank import Case, make

only_interpreted = pytest.mark.skipif(not interpreting(), reason="the interpreter is for the CPU")
BF16 = {"dtype": jnp.bfloat16, "bias_rows": ALIGNMENT}


@partial(jax.jit, static_argnames="layout")
def _add(out: Any, x: Any, arrays: Any, layer: Any, rows: Any, *, layout: Any) -> Any:
    low = LowRank(x, arrays, layout, layer, rows, xla.add_low_rank)
    return table.add_low_rank_on_gpu(out, low, "mosaic")


def added(case: Case, out: Any) -> np.ndarray:
    low = case.low
    return np.asarray(_add(out, low.x, low.arrays, low.layer, low.rows, layout=low.layout))


def products(case: Case, dtype: Any = jnp.float32) -> jax.Array:
    """Random numbers in place of products with the model's own weight."""
    shape = len(case.slot), case.layout.out_size
    return jnp.asarray(np.random.default_rng(9).normal(size=shape), dtype)


def close(found: np.ndarray, case: Case, out: jax.Array) -> None:
    """Sums of x are rounded to 16 bits, and what is added up to the dtype of the products."""
    eps = float(jnp.finfo(out.dtype).eps) / 2  # type: ignore[no-untyped-call]
    for row, base in enumerate(np.asarray(out, np.float64)):
        expected, size = case.added(row) + base, case.size(row)
        room = 2**-15 * size + eps * np.abs(expected) + 1e-6
        assert (np.abs(found[row].astype(np.float64) - expected) <= room).all()


ranks = st.sampled_from([0, 1, 8, 16, 17, 32])


# The interpreter compiles each shape anew: there are few, and rows and slots vary.
@pytest.mark.slow
@example([], 1, 64, (32,), [16] * 12, False, jnp.float32, 0)  # one row, which has no adapter
@example([1], 0, 64, (32,), [16] * 12, True, jnp.bfloat16, 0)
@example([64, 1], 0, 592, (64, 16, 16), [16, 0] * 6, True, jnp.float32, 0)
@given(
    counts=st.lists(st.sampled_from([0, 1, 3, 7, 20, 40]), max_size=3),
    alone=st.integers(0, 5),
    in_size=st.sampled_from([16, 592]),
    sizes=st.sampled_from([(32,), (64, 16, 16)]),
    given=st.lists(ranks, min_size=12, max_size=12),
    biased=st.booleans(),
    dtype=st.sampled_from([jnp.float32, jnp.bfloat16]),
    seed=st.integers(0, 2**31),
)
def test_any_rows(
    counts: list[int],
    alone: int,
    in_size: int,
    sizes: tuple[int, ...],
    given: list[int],
    biased: bool,
    dtype: Any,
    seed: int,
) -> None:
    """Groups of any number of rows, none too; modules of any rank, or missing."""
    each = [given[slot * len(sizes) : (slot + 1) * len(sizes)] for slot in range(3)]
    rows = [slot + 1 for slot, count in enumerate(counts) for _ in range(count)] + [0] * alone
    np.random.default_rng(seed).shuffle(rows)
    if not rows:
        return
    case = make(
        seed, rows=rows, in_size=in_size, sizes=list(sizes), ranks=each, max_rank=32,
        biased=biased, **BF16,
    )  # fmt: skip
    out = products(case, dtype)
    found = added(case, out)
    close(found, case, out)
    base = case.slot == 0
    assert found[base].tobytes() == np.asarray(out)[base].tobytes()


def test_the_gate_and_up_have_columns_of_each_panel() -> None:
    case = make(
        0, rows=[1, 2, 0, 2], in_size=128, sizes=[48, 48], ranks=[[5, 16], [0, 3]], max_rank=16,
        gated=True, biased=True, **BF16,
    )  # fmt: skip
    out = products(case)
    close(added(case, out), case, out)


def test_more_adapters_than_stages_in_one_tile() -> None:
    slots = 2 * STAGES + 1
    case = make(
        0, rows=[*range(slots + 1), *range(slots, -1, -1)], in_size=64, sizes=[32],
        ranks=[[number + 1] for number in range(slots)], max_rank=16, biased=True, **BF16,
    )  # fmt: skip
    out = products(case)
    close(added(case, out), case, out)


@pytest.mark.parametrize("rows", [5, 70])
@pytest.mark.slow
def test_each_row_has_one_of_many_matrices(rows: int) -> None:
    """As in a mixture: two adapters of 40 experts, more than a tile has rows."""
    rng, choices = np.random.default_rng(0), 40
    token, expert = np.arange(rows) // 2, rng.integers(0, choices + 1, rows)
    adapter = rng.integers(0, 3, -(-rows // 2))
    pairs = np.where(adapter[token] > 0, (adapter[token] - 1) * choices + expert + 1, 0)
    pairs = np.where(expert < choices, pairs, 0)  # the last one is another device's
    case = make(
        0, rows=pairs.tolist(), in_size=64, sizes=[32],
        ranks=[[rank] for rank in rng.integers(0, 17, 2 * choices)], max_rank=16, biased=True,
        **BF16,
    )  # fmt: skip
    layout = replace(case.layout, slots=2, choices=choices)
    of_tokens = sort_rows(jnp.asarray(adapter, jnp.int32), 2)
    own = rows_that_choose(of_tokens, jnp.asarray(token), jnp.asarray(expert), layout)
    assert own.slot.tolist() == pairs.tolist()
    out = products(case)
    found = _add(out, case.x, case.arrays, jnp.int32(case.layer), own, layout=layout)
    close(np.asarray(found), case, out)
    assert found[pairs == 0].tobytes() == out[pairs == 0].tobytes()


@pytest.mark.slow
def test_a_row_is_the_same_whatever_is_beside_it() -> None:
    """Alone, among few and among many, of other adapters, in another order and another slot."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 4, 70).tolist()
    case = make(
        1, rows=rows, in_size=192, sizes=[64, 32], ranks=[[16, 5], [0, 3], [8, 17]], max_rank=17,
        biased=True, **BF16,
    )  # fmt: skip
    out = products(case)
    whole = added(case, out)
    for some in (np.arange(1), np.arange(33, 34), np.arange(5, 14), np.arange(1, 65)):
        few = case._replace(x=case.x[some], slot=case.slot[some])
        np.testing.assert_array_equal(added(few, out[some]), whole[some])
    order = rng.permutation(70)
    mixed = case._replace(x=case.x[order], slot=case.slot[order])
    np.testing.assert_array_equal(added(mixed, out[order]), whole[order])
    turned = {name: array[:, ::-1] for name, array in case.arrays.items()}
    others = np.where(case.slot == 0, 0, 4 - case.slot)
    found = added(case._replace(arrays=turned, slot=others), out)
    np.testing.assert_array_equal(found, whole)


@pytest.mark.slow
def test_rows_and_slots_that_are_not_used_may_hold_anything() -> None:
    case = make(
        0, rows=[0, 1, 0, 1], in_size=64, sizes=[32], ranks=[[4], [2]], max_rank=16, **BF16
    )  # fmt: skip
    out = products(case, jnp.bfloat16).at[0].set(jnp.nan).at[2].set(-0.0)
    expected = added(case, out)
    arrays = {
        name: array.at[:, 1].set(jnp.nan) if name in (A, B) else array
        for name, array in case.arrays.items()
    }
    spoilt = case._replace(x=case.x.at[0].set(jnp.nan).at[2].set(jnp.inf), arrays=arrays)
    found = added(spoilt, out)
    assert found.tobytes() == expected.tobytes()
    assert found[[0, 2]].tobytes() == np.asarray(out)[[0, 2]].tobytes()


@pytest.mark.parametrize(("asked", "taken"), [(-3, 0), (1, 1), (2, 1)])
def test_layers_at_the_ends_and_beyond(asked: int, taken: int) -> None:
    case = make(0, rows=[1, 2], in_size=64, sizes=[32], ranks=[[2], [3]], max_rank=4, **BF16)
    out = products(case)
    found = added(case._replace(layer=asked), out)
    np.testing.assert_array_equal(found, added(case._replace(layer=taken), out))


def test_the_twin_reads_slots_with_more_rows_of_biases() -> None:
    """On a GPU whose kernels lack a call, XLA computes with the same slots."""
    sizes: dict[str, Any] = {"rows": [1, 0, 2], "in_size": 64, "sizes": [32]}
    sizes |= {"ranks": [[4], [2]], "max_rank": 16, "biased": True, "dtype": jnp.bfloat16}
    one, eight = make(5, **sizes), make(5, **sizes, bias_rows=ALIGNMENT)
    out = products(one)
    np.testing.assert_array_equal(xla.add_low_rank(out, one.low), xla.add_low_rank(out, eight.low))


@only_interpreted
@pytest.mark.parametrize("slots", [1, STAGES + 2])
@pytest.mark.slow
def test_i48_no_races(slots: int) -> None:
    """All stages are used again, or not all are used."""
    rows = [*range(slots + 1)] * 2
    case = make(
        0, rows=rows, in_size=128, sizes=[32], ranks=[[3]] * slots, max_rank=16, biased=True,
        **BF16,
    )  # fmt: skip
    out = products(case)
    with force_gpu_interpret_mode(InterpretGPUParams(detect_races=True, on_race="raise")):
        close(added(case, out), case, out)


@example([*range(1, 101)], 100)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=3 * ROWS), st.sampled_from([5, 100]))
def test_each_tile_knows_its_adapters(slot: list[int], slots: int) -> None:
    found, rows = tiles_of(jnp.array(slot, jnp.int32), slots), rows_of(len(slot))
    assert found.slot.tolist() == slot + [0] * (len(found.slot) - len(slot))
    assert len(found.busy) == -(-len(slot) // rows)
    assert found.slots.shape == (len(found.busy), min(slots, rows))
    for tile, (count, held) in enumerate(zip(*map(np.asarray, found[1:]), strict=True)):
        own = set(slot[tile * rows : (tile + 1) * rows]) - {0}
        assert [number + 1 for number in held[:count]] == sorted(own)


@pytest.mark.parametrize(
    ("size", "chunk"), [(64, 64), (576, 288), (4096, 512), (14336, 512), (16 * 37, 16)]
)
def test_chunks_divide_the_columns(size: int, chunk: int) -> None:
    assert chunk_of(size) == chunk


@pytest.mark.parametrize(
    ("panels", "rank", "some"),
    [(192, 16, 4), (192, 64, 4), (30, 16, 2), (7, 16, 1), (192, 80, 2), (192, 256, 1)],
)
def test_panels_divide_the_product_and_fit(panels: int, rank: int, some: int) -> None:
    assert panels_of(panels, rank) == some


@only_interpreted
def test_a_cpu_has_neither_kernel_nor_tiles() -> None:
    case = make(0, rows=[1], in_size=64, sizes=[32], ranks=[[2]], max_rank=4, **BF16)
    given = products(case), case.x, case.arrays[A], case.arrays[B], case.layout.halves
    assert not has_kernel(*given)
    assert make_tiles(jnp.asarray(case.slot), 1) is None
    out = products(case)
    by_twin = table.add_low_rank_on_gpu(out, case.low)
    np.testing.assert_array_equal(by_twin, xla.add_low_rank(out, case.low))


@pytest.mark.slow
def test_what_does_not_fit_is_refused(unchecked_shapes: None) -> None:
    case = make(0, rows=[1, 0], in_size=64, sizes=[32], ranks=[[2]], max_rank=4, **BF16)
    sound: dict[str, Any] = {
        "out": products(case),
        "x": case.x,
        "a": case.arrays[A],
        "b": case.arrays[B],
        "slot": jnp.asarray(case.slot),
        "halves": case.layout.halves,
    }

    def refused(message: str, backend: str | None = "mosaic", **other: Any) -> None:
        with pytest.raises(ValueError, match=message):
            add_low_rank(**sound | other, layer=0, backend=backend)

    assert add_low_rank(**sound, layer=0, backend="mosaic").shape == (2, 32)
    refused(r"expected out \[T, out\]", x=case.x[:1])
    refused(r"expected out \[T, out\]", out=sound["out"][:0], x=case.x[:0], slot=sound["slot"][:0])
    refused(r"expected out \[T, out\]", a=sound["a"][:, :, :, :16])
    refused(r"expected out \[T, out\]", b=sound["b"][:1])
    refused(r"expected out \[T, out\]", halves=case.layout.halves[:1])
    refused("x of float32 with adapters of bfloat16", x=case.x.astype(jnp.float32))
    refused("x of bfloat16 with adapters of float32", a=sound["a"].astype(jnp.float32))
    refused("products of float16", out=sound["out"].astype(jnp.float16))
    refused("B in 17 rows", b=sound["b"][:, :, :, :17])
    refused("modules whose outputs", halves=halves_of([range(20)], gated=False))
    refused("1 modules with slots of rank 272", b=jnp.zeros((2, 1, 1, 280, 32), jnp.bfloat16))
    refused("'xla' lacks this operation", backend="xla")
    refused("x of 8 columns", x=case.x[:, :8], a=sound["a"][:, :, :, :4])
