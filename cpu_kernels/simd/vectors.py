"""Vectors of 16 float32 for Numba functions, held in registers.

Kernels are vectorised by hand, so their speed does not depend on a loop vectoriser. LLVM splits a
vector into as many registers as the processor needs: four of NEON, two of AVX2, one of AVX-512.
A comparison with NaN is false. `total` is the only operation whose order of additions is not fixed.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model

LANES = 16
BYTES = 4 * LANES

FLOAT, INT, LONG = ir.FloatType(), ir.IntType(32), ir.IntType(64)
FLOATS, INTS = ir.VectorType(FLOAT, LANES), ir.VectorType(INT, LANES)
_UNSET = ir.Constant(FLOATS, ir.Undefined)


class VectorType(types.Type):  # type: ignore[misc]
    """Numba's name of a vector."""

    def __init__(self) -> None:
        super().__init__("float32x16")


vector = VectorType()
real = types.float32
place = types.intp


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, FLOATS)


def operation(result: Any, *given: Any) -> Callable[[Callable[..., Any]], Any]:
    """Makes an intrinsic from a function of LLVM's builder and the arguments' LLVM values."""

    def decorate(emit: Callable[..., Any]) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return emit(builder, *values)

        kind = result(*given)
        # Numba reads the number of arguments off the function.
        typed = {
            1: lambda context, a: (kind, generate),
            2: lambda context, a, b: (kind, generate),
            3: lambda context, a, b, c: (kind, generate),
            4: lambda context, a, b, c, d: (kind, generate),
            5: lambda context, a, b, c, d, e: (kind, generate),
        }[len(given)]
        return intrinsic(typed)

    return decorate


def call(builder: Any, name: str, values: Any, result: Any, flags: tuple[str, ...] = ()) -> Any:
    """A call of one of LLVM's own functions."""
    kind = ir.FunctionType(result, [value.type for value in values])
    found = builder.module.globals.get(name)
    return builder.call(found or ir.Function(builder.module, kind, name), values, fastmath=flags)


def spread_value(builder: Any, number: Any) -> Any:
    """Broadcasts one float32 (an LLVM value) to all lanes."""
    first = builder.insert_element(_UNSET, number, INT(0))
    return builder.shuffle_vector(first, _UNSET, ir.Constant(INTS, [0] * LANES))


def smaller(builder: Any, a: Any, b: Any) -> Any:
    """The smaller of two integers (LLVM values)."""
    return builder.select(builder.icmp_signed("<", a, b), a, b)


def below(builder: Any, count: Any) -> Any:
    """A mask of the lanes before `count`."""
    unset = ir.Constant(INTS, ir.Undefined)
    first = builder.insert_element(unset, builder.trunc(count, INT), INT(0))
    counts = builder.shuffle_vector(first, first, ir.Constant(INTS, [0] * LANES))
    return builder.icmp_signed("<", ir.Constant(INTS, list(range(LANES))), counts)


def same(number: int) -> Any:
    """An LLVM constant with an integer in all lanes."""
    return ir.Constant(INTS, [number] * LANES)


def masked_load(builder: Any, pointer: Any, kind: Any, name: str, count: Any, align: int) -> Any:
    values = (pointer, INT(align), below(builder, count), ir.Constant(kind, None))
    return call(builder, f"llvm.masked.load.v{LANES}{name}.p0", values, kind)


def masked_store(builder: Any, pointer: Any, value: Any, name: str, count: Any, align: int) -> None:
    values = (value, pointer, INT(align), below(builder, count))
    call(builder, f"llvm.masked.store.v{LANES}{name}.p0", values, ir.VoidType())


@operation(vector, place)
def load(builder: Any, address: Any) -> Any:
    """The 16 numbers at an address, which need not be aligned."""
    return builder.load(builder.inttoptr(address, FLOATS.as_pointer()), align=4)


@operation(types.void, place, vector)
def store(builder: Any, address: Any, value: Any) -> Any:
    """Writes 16 numbers to an address."""
    builder.store(value, builder.inttoptr(address, FLOATS.as_pointer()), align=4)


@operation(vector, place, place)
def load_some(builder: Any, address: Any, count: Any) -> Any:
    """The first `count` of 16 numbers, and zeros for the others, which are not read."""
    pointer = builder.inttoptr(address, FLOATS.as_pointer())
    return masked_load(builder, pointer, FLOATS, "f32", count, 4)


@operation(types.void, place, vector, place)
def store_some(builder: Any, address: Any, value: Any, count: Any) -> Any:
    """Writes the first `count` numbers to an address."""
    pointer = builder.inttoptr(address, FLOATS.as_pointer())
    masked_store(builder, pointer, value, "f32", count, 4)


@operation(real, place)
def get(builder: Any, address: Any) -> Any:
    """Loads one number."""
    return builder.load(builder.inttoptr(address, FLOAT.as_pointer()), align=4)


@operation(types.void, place, real)
def put(builder: Any, address: Any, value: Any) -> Any:
    """Writes one number to an address."""
    builder.store(value, builder.inttoptr(address, FLOAT.as_pointer()), align=4)


def prefetch_at(builder: Any, address: Any) -> None:
    """Prefetches the cache line at an address; invalid addresses are allowed."""
    pointer = builder.inttoptr(address, ir.IntType(8).as_pointer())
    values = (pointer, INT(0), INT(3), INT(1))
    call(builder, "llvm.prefetch.p0", values, ir.VoidType())


prefetch = operation(types.void, place)(prefetch_at)


@operation(vector, types.float64)
def spread(builder: Any, number: Any) -> Any:
    """Broadcasts a number to all lanes; LLVM drops the conversion of a float32 to float64."""
    return spread_value(builder, builder.fptrunc(number, FLOAT))


@operation(vector, place)
def count_from(builder: Any, first: Any) -> Any:
    """first, first + 1, ... first + 15."""
    steps = ir.Constant(FLOATS, [float(i) for i in range(LANES)])
    return builder.fadd(spread_value(builder, builder.sitofp(first, FLOAT)), steps)


@operation(vector, vector, vector)
def add(builder: Any, a: Any, b: Any) -> Any:
    return builder.fadd(a, b)


@operation(vector, vector, vector)
def sub(builder: Any, a: Any, b: Any) -> Any:
    return builder.fsub(a, b)


@operation(vector, vector, vector)
def mul(builder: Any, a: Any, b: Any) -> Any:
    return builder.fmul(a, b)


@operation(vector, vector, vector)
def div(builder: Any, a: Any, b: Any) -> Any:
    return builder.fdiv(a, b)


def madd_values(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once where the processor can."""
    return call(builder, f"llvm.fmuladd.v{LANES}f32", (a, b, c), FLOATS)


madd = operation(vector, vector, vector, vector)(madd_values)


@operation(vector, vector, vector)
def larger(builder: Any, a: Any, b: Any) -> Any:
    """The larger of the two; b where a is NaN."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


@operation(vector, vector, vector, vector, vector)
def where_less(builder: Any, a: Any, b: Any, then: Any, otherwise: Any) -> Any:
    """`then` where a <= b, `otherwise` elsewhere and where one is NaN."""
    return builder.select(builder.fcmp_ordered("<=", a, b), then, otherwise)


@operation(vector, vector)
def shifted_to_exponent(builder: Any, value: Any) -> Any:
    """The float whose bits are those of `value` shifted left by 23: see `exp`."""
    bits = builder.shl(builder.bitcast(value, INTS), ir.Constant(INTS, [23] * LANES))
    return builder.bitcast(bits, FLOATS)


@operation(real, place)
def float_of_bits(builder: Any, bits: Any) -> Any:
    """The float32 with these 32 bits."""
    return builder.bitcast(builder.trunc(bits, INT), FLOAT)


@operation(real, vector)
def total(builder: Any, value: Any) -> Any:
    """Sum of the lanes."""
    name = f"llvm.vector.reduce.fadd.v{LANES}f32"
    return call(builder, name, (ir.Constant(FLOAT, -0.0), value), FLOAT, ("reassoc",))


def _fold(builder: Any, value: Any) -> Any:
    """The sum of a vector's halves."""
    size = value.type.count // 2
    low, high = (
        builder.shuffle_vector(
            value, value, ir.Constant(ir.VectorType(INT, size), list(range(first, first + size)))
        )
        for first in (0, size)
    )
    return builder.fadd(low, high)


@operation(real, vector)
def total_in_order(builder: Any, value: Any) -> Any:
    """Sum of the lanes: halves are added until one lane is left."""
    while value.type.count > 1:
        value = _fold(builder, value)
    return builder.extract_element(value, INT(0))


def _mix(builder: Any, a: Any, b: Any, low: tuple[int, ...], high: tuple[int, ...]) -> Any:
    """The sum of two arrangements of the lanes of a (0 to 7) and b (8 to 15)."""
    kind = ir.VectorType(INT, 8)
    parts = (builder.shuffle_vector(a, b, ir.Constant(kind, list(order))) for order in (low, high))
    return builder.fadd(*parts)


def totals_of_four(builder: Any, values: list[Any]) -> Any:
    """The sums of four vectors' lanes, as a vector of four.

    Together they take a third of the instructions of four separate sums: every addition uses all
    lanes, and only the last step moves lanes across the halves of a register.
    """
    a, b, c, d = (_fold(builder, value) for value in values)
    pairs = (0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15)
    ab, cd = _mix(builder, a, b, *pairs), _mix(builder, c, d, *pairs)
    quads = _mix(builder, ab, cd, (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15))
    return _fold(builder, quads)


@operation(types.void, place, vector, vector, vector, vector)
def put_totals(builder: Any, address: Any, *four: Any) -> None:
    """Writes the sums of four vectors' lanes to an address, side by side."""
    totals = totals_of_four(builder, list(four))
    builder.store(totals, builder.inttoptr(address, totals.type.as_pointer()), align=4)


@operation(real, vector)
def largest(builder: Any, value: Any) -> Any:
    """The largest lane; no lane may be NaN."""
    return call(builder, f"llvm.vector.reduce.fmax.v{LANES}f32", (value,), FLOAT, ("nnan", "nsz"))


@operation(real, vector)
def first(builder: Any, value: Any) -> Any:
    """The first lane."""
    return builder.extract_element(value, INT(0))
