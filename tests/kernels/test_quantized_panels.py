"""Panels of codes: what is packed is what is read, and what cannot be held is refused."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpu_kernels.linear.coded_kinds import LONGEST, panel_bytes, panel_kinds
from cpu_kernels.linear.coded_panels import (
    matrix_bytes,
    num_panels,
    pack,
    pack_codes,
    places_of,
    take_rows,
)
from cpu_kernels.simd.coded_scales import FLOAT16, FLOAT32
from cpu_kernels.simd.micro_kernel import COLUMNS
from jax_engine.weights.codes import INT8, Kind
from tests.kernels.quantized import KINDS, SEVEN_LESS, meant, packed, rows_of


@partial(jax.jit, static_argnames=("kind", "size"))
def taken(panels: Any, kind: Any, ids: Any, size: int) -> jax.Array:
    return take_rows(panels, kind, ids, size)


@given(
    count=st.integers(1, 2 * COLUMNS + 5),
    size=st.one_of(st.integers(1, 70), st.sampled_from([250, 300])),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**31),
)
def test_rows_are_taken_out_of_panels_as_they_were(
    count: int, size: int, kind: Kind, seed: int
) -> None:
    rows = rows_of(np.random.default_rng(seed), (kind,), [0] * count, size)
    panels, _, held = packed([rows], (kind,), spare=64)
    ids, nearest = [0, count - 1, count // 2, -3], [0, count - 1, count // 2, 0]
    found = np.asarray(taken(panels[0], held[0], jnp.asarray(ids), size))
    expected = meant(rows, (kind,))[nearest]
    if kind.minimums:  # XLA rounds a sum of a product once
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-5)
    else:
        np.testing.assert_array_equal(found, expected)


def test_rows_beyond_the_last_are_zeros() -> None:
    kind = KINDS[1]
    rows = rows_of(np.random.default_rng(0), (kind,), [0] * (COLUMNS + 1), 40)
    panels, _, held = packed([rows], (kind,))
    found = np.asarray(taken(panels[0], held[0], jnp.asarray([COLUMNS + 1, 9 * COLUMNS]), 40))
    assert not found.any()


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("size", [3, 16, 21, 37])
def test_what_follows_a_row_is_not_read(size: int, bits: int) -> None:
    """Columns beyond it get codes 0, whatever the bytes behind its codes are."""

    def panel(behind: int) -> np.ndarray:
        codes = np.full((2, size + 8), behind, np.uint8)
        codes[:, :size] = np.arange(2 * size).reshape(2, size) % 16
        held = -(-size // 16) * 16
        out = np.full(held * COLUMNS * bits // 8, 7, np.uint8)
        numbers = [np.array([value], np.int64) for value in (0, 2, out.ctypes.data)]
        addresses = [one.ctypes.data for one in numbers]
        rows = codes.ctypes.data, codes.strides[0], size
        pack_codes(*rows, *addresses, 1, 0, 0, held, bits, COLUMNS)
        return out

    np.testing.assert_array_equal(panel(behind=255), panel(behind=0))


@pytest.mark.parametrize("parts", [1, 2])
def test_panels_lie_one_after_another_and_parts_alternate(parts: int) -> None:
    kinds, size = (KINDS[0], KINDS[4]), 64
    held = panel_kinds(kinds, size)
    chosen = np.repeat([0, 0, 1, 1], COLUMNS)
    places = places_of(held, chosen, size, parts=parts)
    order = [[0, 0, 1, 1], [0, 1, 0, 1]][parts - 1]
    assert places[:, 1].tolist() == order
    sizes = [panel_bytes(held[number], size) for number in order]
    assert (64 * places[:, 0]).tolist() == np.cumsum([0, *sizes])[:-1].tolist()
    assert matrix_bytes(held, places, size) == sum(sizes)


def test_panels_of_gate_and_up_alternate() -> None:
    chosen = np.array([0] * (COLUMNS + 1) + [1] * (COLUMNS + 1))
    places = places_of(panel_kinds(KINDS[:2], 64), chosen, 64, parts=2)
    assert places[:, 1].tolist() == [0, 1, 0, 1]


def test_nothing_is_written_beyond_the_panels() -> None:
    kind, size = KINDS[0], 50
    rows = rows_of(np.random.default_rng(0), (kind,), [0] * (COLUMNS + 5), size)
    held = panel_kinds((kind,), size)
    places = places_of(held, rows["kind"], size)
    used = matrix_bytes(held, places, size)
    panels = np.full(used + 128, 0xAB, np.uint8)
    pack(rows, (kind,), panels[64 : 64 + used], places)
    assert (panels[:64] == 0xAB).all() and (panels[64 + used :] == 0xAB).all()


def test_bytes_of_a_panel() -> None:
    """The unit is bits of a number, for plain groups of 32, Q4_K and Q6_K."""
    kinds = panel_kinds((KINDS[0], KINDS[4], KINDS[6], KINDS[5]), 512)
    bits = [8 * panel_bytes(kind, 512) / (COLUMNS * 512) for kind in kinds]
    assert bits == [4.5, 8.5, 4.625, 8.625]


def test_how_groups_are_held() -> None:
    def groups(*kinds: Kind, size: int = 1024) -> list[int]:
        return [kind.group for kind in panel_kinds(kinds, size)]

    table = Kind(SEVEN_LESS, 32)
    assert groups(table, table._replace(group=16), table._replace(group=128)) == [32, 16, 128]
    assert groups(table._replace(group=1024), table._replace(group=192)) == [LONGEST, 96]
    assert groups(table._replace(group=50), size=50) == [64]
    lowest = [table._replace(group=group, minimums=True) for group in (32, 128)]
    assert groups(*lowest, table._replace(group=64)) == [32, 32, 64]
    kinds = panel_kinds((KINDS[0], KINDS[1], KINDS[6]), 1024)
    assert [kind.scales for kind in kinds] == [FLOAT16, FLOAT32, FLOAT16]


def test_outer_scales_of_other_blocks_are_multiplied_with_the_others() -> None:
    def outer(kind: Kind, size: int = 1024) -> tuple[bool, int]:
        (held,) = panel_kinds((kind,), size)
        return held.outer, held.scales

    assert outer(KINDS[6]) == (True, FLOAT16)
    assert outer(KINDS[6]._replace(outer=128)) == (False, FLOAT32)
    assert outer(KINDS[6]._replace(group=96)) == (False, FLOAT32)
    assert outer(KINDS[5]) == (True, FLOAT32)


@pytest.mark.parametrize(
    ("kind", "field", "value", "name"),
    [
        (KINDS[0], "scales", 1 + 2.0**-12, "float16"),
        (KINDS[6], "scales", 128, "int8"),
        (KINDS[6], "minimums", 0.5, "int8"),
        (KINDS[6], "outer_scales", 1e5, "float16"),
    ],
)
def test_scales_of_another_type_than_their_kind_says_are_refused(
    kind: Kind, field: str, value: float, name: str
) -> None:
    rows = rows_of(np.random.default_rng(0), (kind,), [0] * 5, 64)
    rows[field][4, 0] = value
    message = f"must be numbers of {name}, got {value}"
    with np.errstate(over="ignore", invalid="ignore"), pytest.raises(ValueError, match=message):
        packed([rows], (kind,))


@pytest.mark.parametrize("group", [8, 24, 100])
def test_groups_of_other_sizes_are_refused(group: int) -> None:
    with pytest.raises(ValueError, match=rf"multiples of 16 .*, got {group}"):
        panel_kinds((Kind(INT8, group),), 512)


@pytest.mark.parametrize("table", [(1.0,) * 15, (*SEVEN_LESS[:-1], float("nan"))])
def test_other_tables_are_refused(table: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="16 finite numbers"):
        panel_kinds((Kind(table, 32),), 512)


def test_a_panel_has_one_kind() -> None:
    chosen = [0] * COLUMNS + [0] * 3 + [1] * 5
    message = rf"one kind, got \[0, 1\] in rows {COLUMNS} to {COLUMNS + 7}"
    with pytest.raises(ValueError, match=message):
        places_of(panel_kinds(KINDS[:2], 64), np.array(chosen), 64)


def test_a_matrix_without_rows_has_no_panels() -> None:
    assert num_panels(0) == 0
    held = panel_kinds(KINDS[:1], 64)
    assert matrix_bytes(held, places_of(held, np.zeros(0, np.uint8), 64), 64) == 0


def test_arrays_of_other_sizes_are_refused() -> None:
    rows = rows_of(np.random.default_rng(0), KINDS[:1], [0] * 5, 64)
    needed = panel_bytes(panel_kinds(KINDS[:1], 64)[0], 64)
    for places, size in ((2, needed), (1, needed - 64)):
        with pytest.raises(ValueError, match=rf"\[5, 64\] needs places \(1, 2\) and {needed} byt"):
            pack(rows, KINDS[:1], np.zeros(size, np.uint8), np.zeros((places, 2), np.int32))
