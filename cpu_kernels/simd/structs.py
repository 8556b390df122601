"""Numba types for memory in XLA's and our own layouts: each value is only an address.

    call.x.shape[0]       the first size of the operand that a kernel declares as `x`
    call.x.address        where its numbers begin
    int32s(place)[i]      the i-th int32 from an address on
    work.scale            a field of a record

Reading an attribute emits one or two loads. Numba's own arrays and records would do the same but
take several times as long to compile.
"""

import operator
from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.datamodel import models
from numba.core.imputils import lower_builtin, lower_getattr_generic, lower_setattr_generic
from numba.core.typing.templates import (
    AbstractTemplate,
    AttributeTemplate,
    infer_getattr,
    infer_global,
    signature,
)
from numba.extending import intrinsic, register_model

LONG = ir.IntType(64)
# Byte offsets in a call frame and in a buffer (`xla/ffi/api/c_api.h`).
OPERANDS, RESULTS = 72, 112
DTYPE, ADDRESS, RANK, SHAPE = 16, 24, 32, 40
# XLA's numbers of element types, as in `xla_data.proto`: what `call.x.dtype` is.
INT8, FLOAT16, FLOAT32, BFLOAT16, FLOAT8 = 2, 10, 11, 16, 20


class Numbers(types.Type):  # type: ignore[misc]
    """Consecutive numbers of one type, without bounds."""

    def __init__(self, number: Any, value: Any):
        super().__init__(f"{number}s")
        self.number, self.value = number, value  # the type in memory, and in Numba's computations


class Buffer(types.Type):  # type: ignore[misc]
    """An operand or a result of a call."""

    def __init__(self) -> None:
        super().__init__("Buffer")


class Call(types.Type):  # type: ignore[misc]
    """A call frame of one kernel."""

    def __init__(self, name: str, operands: Sequence[str], results: Sequence[str]):
        super().__init__(f"Call({name})")
        given = {name: (OPERANDS, 8 * i) for i, name in enumerate(operands)}
        self.buffers = given | {name: (RESULTS, 8 * i) for i, name in enumerate(results)}


class Record(types.Type):  # type: ignore[misc]
    """Named fields of 8 bytes each."""

    def __init__(self, name: str, fields: dict[str, Any]):
        super().__init__(f"Record({name})")
        self.fields = {field: (8 * i, kind) for i, (field, kind) in enumerate(fields.items())}


INT32S, INT64S = Numbers(types.int32, types.intp), Numbers(types.int64, types.intp)
FLOAT32S = Numbers(types.float32, types.float32)
BUFFER = Buffer()


class _AddressModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, LONG)


for _kind in (Numbers, Buffer, Call, Record):
    register_model(_kind)(_AddressModel)


def view(kind: Any) -> Any:
    """Makes a Numba function that turns an address into a value of one of these types."""

    @intrinsic
    def as_kind(context: Any, address: Any) -> Any:
        return kind(types.intp), lambda context, builder, signature, values: values[0]

    return as_kind


int32s, int64s, float32s = view(INT32S), view(INT64S), view(FLOAT32S)


@infer_global(operator.getitem)
class _GetNumber(AbstractTemplate):  # type: ignore[misc]
    def generic(self, arguments: Any, names: Any) -> Any:
        if isinstance(arguments[0], Numbers) and isinstance(arguments[1], types.Integer):
            return signature(arguments[0].value, arguments[0], types.intp)
        return None


@infer_global(operator.setitem)
class _SetNumber(AbstractTemplate):  # type: ignore[misc]
    def generic(self, arguments: Any, names: Any) -> Any:
        if isinstance(arguments[0], Numbers) and isinstance(arguments[1], types.Integer):
            return signature(types.void, arguments[0], types.intp, arguments[0].value)
        return None


def _pointer(context: Any, builder: Any, kind: Numbers, start: Any, index: Any) -> tuple[Any, int]:
    number = context.get_value_type(kind.number)
    size = kind.number.bitwidth // 8
    place = builder.add(start, builder.mul(index, LONG(size)))
    return builder.inttoptr(place, number.as_pointer()), min(size, 4)


@lower_builtin(operator.getitem, Numbers, types.intp)
def _get_number(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    kind = signature.args[0]
    pointer, align = _pointer(context, builder, kind, *values)
    return context.cast(builder, builder.load(pointer, align=align), kind.number, kind.value)


@lower_builtin(operator.setitem, Numbers, types.intp, types.Any)
def _set_number(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    kind, (start, index, value) = signature.args[0], values
    pointer, align = _pointer(context, builder, kind, start, index)
    value = context.cast(builder, value, signature.args[2], kind.number)
    builder.store(value, pointer, align=align)
    return context.get_dummy_value()


def _load(builder: Any, address: Any, offset: int) -> Any:
    place = builder.add(address, LONG(offset))
    return builder.load(builder.inttoptr(place, LONG.as_pointer()))


# Attributes of a buffer: the type of each, and the offset of its word.
_OF_BUFFER = {
    "dtype": (types.intp, DTYPE),
    "address": (types.intp, ADDRESS),
    "int32": (INT32S, ADDRESS),
    "float32": (FLOAT32S, ADDRESS),
    "rank": (types.intp, RANK),
    "shape": (INT64S, SHAPE),
}


@infer_getattr
class _BufferAttributes(AttributeTemplate):  # type: ignore[misc]
    key = Buffer

    def generic_resolve(self, buffer: Buffer, name: str) -> Any:
        return _OF_BUFFER[name][0] if name in _OF_BUFFER else None


@lower_getattr_generic(Buffer)
def _of_buffer(context: Any, builder: Any, kind: Buffer, buffer: Any, name: str) -> Any:
    found = _load(builder, buffer, _OF_BUFFER[name][1])
    return builder.and_(found, LONG(0xFFFFFFFF)) if name == "dtype" else found  # an int32


@infer_getattr
class _CallAttributes(AttributeTemplate):  # type: ignore[misc]
    key = Call

    def generic_resolve(self, call: Call, name: str) -> Any:
        return BUFFER if name in call.buffers else None


@lower_getattr_generic(Call)
def _of_call(context: Any, builder: Any, kind: Call, frame: Any, name: str) -> Any:
    table, offset = kind.buffers[name]
    return _load(builder, _load(builder, frame, table), offset)


@infer_getattr
class _RecordAttributes(AttributeTemplate):  # type: ignore[misc]
    key = Record

    def generic_resolve(self, record: Record, name: str) -> Any:
        return record.fields[name][1] if name in record.fields else None


def _field(context: Any, builder: Any, kind: Record, record: Any, name: str) -> Any:
    offset, number = kind.fields[name]
    pointer = context.get_value_type(number).as_pointer()
    return builder.inttoptr(builder.add(record, LONG(offset)), pointer)


@lower_getattr_generic(Record)
def _get_field(context: Any, builder: Any, kind: Record, record: Any, name: str) -> Any:
    return builder.load(_field(context, builder, kind, record, name))


@lower_setattr_generic(Record)
def _set_field(context: Any, builder: Any, signature: Any, values: Any, name: str) -> None:
    builder.store(values[1], _field(context, builder, signature.args[0], values[0], name))
