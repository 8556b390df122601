"""Takes rows out of a weight in codes, in XLA: a tied embedding's."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, UInt8

from cpu_kernels.quantized.kinds import INT8, PanelKind, panel_bytes
from cpu_kernels.simd.coded_scales import OUTER
from cpu_kernels.simd.micro_kernel import COLUMNS


def take_rows(
    panels: UInt8[Array, " bytes"], kind: PanelKind, rows: Int[Array, " T"], size: int
) -> Float[Array, "T size"]:
    """Rows [size] of a weight whose panels all have one kind, in float32.

    Row numbers are clipped to those of the panels: rows beyond the weight's last are zeros.
    """
    step = panel_bytes(kind, size)
    of_panels = panels[: panels.shape[0] // step * step].reshape(-1, step)
    rows = jnp.clip(rows, 0, of_panels.shape[0] * COLUMNS - 1)
    panel, lane = (rows // COLUMNS)[:, None], (rows % COLUMNS)[:, None]
    column = jnp.arange(size)[None]
    group, place = column // kind.group, column % kind.group
    start = kind.outer_bytes(size) + group * (kind.head_bytes + kind.group * kind.column_bytes)
    found = _codes(of_panels, kind, panel, start + kind.head_bytes, place, lane)
    of_columns = (of_panels, kind, panel, start, column // OUTER, lane)
    scaled = _scales(*of_columns, 0) * found
    return scaled + _scales(*of_columns, 1) if kind.minimums else scaled


def _codes(
    panels: Array, kind: PanelKind, panel: Array, start: Array, place: Array, lane: Array
) -> Array:
    """What the codes at some columns of a group stand for; the group's codes begin at `start`."""
    if kind.bits == 4:
        line, at = place // 8, place % 8
        byte = 4 * (COLUMNS * line + lane) + 2 * (at % 2) + at // 4
        code = panels[panel, start + byte] >> (4 * (at // 2 % 2)).astype(jnp.uint8) & 15
        return jnp.asarray(kind.table, jnp.float32)[code]
    line, at = place // 2, place % 2
    code = panels[panel, start + 2 * (COLUMNS * line + lane) + at]
    dtype = jnp.int8 if kind.code == INT8 else jnp.float8_e4m3fn
    return lax.bitcast_convert_type(code, dtype).astype(jnp.float32)


def _scales(
    panels: Array,
    kind: PanelKind,
    panel: Array,
    start: Array,
    block: Array,
    lane: Array,
    which: int,
) -> Array:
    """The scale of some columns, whose groups begin at `start`; or with `which` 1 the minimum."""
    place = lane + COLUMNS * which
    outer = (block * (1 + kind.minimums) * COLUMNS + place) * kind.item
    wide = (outer if kind.outer else start + kind.item * place)[..., None]
    found = _number(panels[panel[..., None], wide + jnp.arange(kind.item)])
    if not kind.outer:
        return found
    small = lax.bitcast_convert_type(panels[panel, start + place], jnp.int8)
    return small.astype(jnp.float32) * found


def _number(held: Array) -> Array:
    """The float16 or float32 whose bytes are the last axis, as float32."""
    dtype = jnp.float16 if held.shape[-1] == 2 else jnp.float32
    return lax.bitcast_convert_type(held, dtype).astype(jnp.float32)
