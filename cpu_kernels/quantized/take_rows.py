"""Takes rows out of a weight in codes, in XLA: a tied embedding's."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, UInt8

from cpu_kernels.quantized.kinds import FLOAT16, INT8, TABLE, PanelKind, panel_bytes
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
    start = group * (kind.head_bytes + kind.group * kind.column_bytes)
    item = 2 if kind.scales == FLOAT16 else 4
    found = _codes(of_panels, kind, panel, start + kind.head_bytes, place, lane)
    head = jnp.arange(item) + item * lane[..., None] + start[..., None]
    scale = _number(of_panels[panel[..., None], head])
    if not kind.minimums:
        return scale * found
    return scale * found + _number(of_panels[panel[..., None], head + item * COLUMNS])


def _codes(
    panels: Array, kind: PanelKind, panel: Array, start: Array, place: Array, lane: Array
) -> Array:
    """What the codes at some columns of a group stand for; the group's codes begin at `start`."""
    if kind.code == TABLE:
        line, at = place // 8, place % 8
        byte = 4 * (COLUMNS * line + lane) + 2 * (at % 2) + at // 4
        code = panels[panel, start + byte] >> (4 * (at // 2 % 2)).astype(jnp.uint8) & 15
        return jnp.asarray(kind.table, jnp.float32)[code]
    line, at = place // 2, place % 2
    code = panels[panel, start + 2 * (COLUMNS * line + lane) + at]
    dtype = jnp.int8 if kind.code == INT8 else jnp.float8_e4m3fn
    return lax.bitcast_convert_type(code, dtype).astype(jnp.float32)


def _number(held: Array) -> Array:
    """The float16 or float32 whose bytes are the last axis, as float32."""
    dtype = jnp.float16 if held.shape[-1] == 2 else jnp.float32
    return lax.bitcast_convert_type(held, dtype).astype(jnp.float32)
