"""bitsandbytes in 4 bits: codes of a table of 16 numbers, NF4's or FP4's, in blocks.

    weight                    uint8[N K / 2, 1]  all rows in one run, the first code of a byte in
                                                 the high nibble
    weight.absmax             float32[blocks]    a scale for each run of, as a rule, 64 numbers
    weight.quant_map          float32[16]        the table
    weight.quant_state.bitsandbytes__nf4         JSON: shape, sizes of blocks, and an offset

With double quantisation `absmax` is uint8, codes of `weight.nested_quant_map` [256], each of which
is multiplied by `weight.nested_absmax`, for blocks of 256, before the offset is added.

A matrix whose rows are no whole blocks has no rows of codes.
"""

import functools
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.checkpoints.quantization.matrices import Grouped, Plain
from jax_engine.models.checkpoints.quantization.method import (
    WEIGHT,
    Matrix,
    Method,
    Parts,
    require,
    settings,
)

ABSMAX, TABLE = ".weight.absmax", ".weight.quant_map"
NESTED_ABSMAX, NESTED_TABLE = ".weight.nested_absmax", ".weight.nested_quant_map"
STATES = (".weight.quant_state.bitsandbytes__nf4", ".weight.quant_state.bitsandbytes__fp4")
ENDS = (WEIGHT, ABSMAX, TABLE, NESTED_ABSMAX, NESTED_TABLE, *STATES)
MAX_STATE_BYTES = 1 << 16


class Fields(msgspec.Struct, frozen=True):
    """quantization_config; tables are in the tensors."""

    load_in_4bit: bool | None = False
    load_in_8bit: bool | None = False
    bnb_4bit_quant_type: str | None = None
    bnb_4bit_quant_storage: str | None = "uint8"


class State(msgspec.Struct, frozen=True):
    """The JSON of a matrix."""

    shape: Annotated[list[Size], Meta(min_length=2, max_length=2)]
    blocksize: Size
    nested_blocksize: Size | None = None
    nested_offset: float | None = None


def method(raw: Mapping[str, Any]) -> Method:
    """Raises ConfigError: a field has a value that is not known."""
    fields = settings(raw, Fields)
    require("load_in_8bit", fields.load_in_8bit or False, (False,))
    require("load_in_4bit", fields.load_in_4bit, (True,))
    require("bnb_4bit_quant_type", fields.bnb_4bit_quant_type, (None, "nf4", "fp4"))
    require("bnb_4bit_quant_storage", fields.bnb_4bit_quant_storage, (None, "uint8"))
    return Method(ENDS, matrix)


def matrix(parts: Parts) -> Matrix:
    """The matrix of a module. Raises WeightsError: a part is missing, or not as the state says."""
    state = _state(parts)
    num_outputs, num_inputs = state.shape
    count = num_outputs * num_inputs
    parts.expect(WEIGHT, ("U8",), (-(-count // 2), 1))
    blocks = -(-count // state.blocksize)
    parts.expect(ABSMAX, ("F32", "U8"), (blocks,))
    parts.expect(TABLE, ("F32",), (16,))
    if parts.dtype(ABSMAX) == "U8":
        if state.nested_blocksize is None or state.nested_offset is None:
            raise parts.error(ABSMAX, "nested_blocksize and nested_offset in quant_state", state)
        parts.expect(NESTED_TABLE, ("F32",), (256,))
        parts.expect(NESTED_ABSMAX, ("F32",), (-(-blocks // state.nested_blocksize),))
    shape = num_outputs, num_inputs
    if num_inputs % state.blocksize or num_inputs % 2:
        return Plain(shape, functools.partial(_numbers, parts, state))
    return Grouped(
        shape=shape,
        code=_table(parts),
        group=state.blocksize,
        codes_into=functools.partial(_codes_into, parts),
        scales=lambda: _absmax(parts, state).reshape(num_outputs, -1),
    )


def _state(parts: Parts) -> State:
    end = STATES[1] if parts.has(STATES[1]) else STATES[0]
    (size,) = parts.expect(end, ("U8",), (None,))
    if size > MAX_STATE_BYTES:
        raise parts.error(end, f"{MAX_STATE_BYTES} bytes at most", size)
    try:
        return msgspec.json.decode(parts.raw(end).tobytes(), type=State)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise parts.error(end, "shape and blocksize in JSON", f"something else: {error}") from None


def _table(parts: Parts) -> tuple[float, ...]:
    table = parts.raw(TABLE)
    if not np.isfinite(table).all():
        raise parts.error(TABLE, "finite numbers", table)
    return tuple(map(float, table))


def _codes_into(parts: Parts, out: np.ndarray) -> None:
    raw = parts.raw(WEIGHT).reshape(len(out), -1)
    out[:, 0::2] = raw >> np.uint8(4)
    out[:, 1::2] = raw & np.uint8(15)


def _absmax(parts: Parts, state: State) -> np.ndarray:
    """The scale of each block."""
    found = parts.raw(ABSMAX)
    if state.nested_blocksize is None or found.dtype != np.uint8:
        return found.astype(np.float32)
    nested = np.repeat(parts.raw(NESTED_ABSMAX), state.nested_blocksize)[: len(found)]
    with np.errstate(all="ignore"):
        scales: np.ndarray = parts.raw(NESTED_TABLE)[found] * nested
        return scales + np.float32(state.nested_offset or 0)


def _numbers(parts: Parts, state: State) -> np.ndarray:
    codes = np.empty((1, 2 * parts.shape(WEIGHT)[0]), np.uint8)
    _codes_into(parts, codes)
    num_outputs, num_inputs = state.shape
    found = parts.raw(TABLE)[codes[0, : num_outputs * num_inputs]]
    scales = np.repeat(_absmax(parts, state), state.blocksize)[: len(found)]
    with np.errstate(all="ignore"):
        return np.asarray(found * scales).reshape(num_outputs, num_inputs)
