"""Memory by address: single numbers, atomics, allocation, copying, and calls of C functions."""

from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cpu_kernels.simd.vectors import operation

WORD = ir.IntType(64)
DONTNEED = 4  # MADV_DONTNEED


@intrinsic
def fetch_add(typing_context: Any, address: Any, value: Any) -> Any:
    """Atomically adds to the int64 at an address, and returns the value before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], WORD.as_pointer())
        return builder.atomic_rmw("add", pointer, arguments[1], "seq_cst")

    return types.intp(types.intp, types.intp), generate


@intrinsic
def load(typing_context: Any, address: Any) -> Any:
    """The int64 at an address, and then whatever another thread or process wrote before it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], WORD.as_pointer())
        return builder.load_atomic(pointer, "acquire", 8)

    return types.intp(types.intp), generate


@intrinsic
def store(typing_context: Any, address: Any, value: Any) -> Any:
    """Writes the int64 at an address, behind whatever this thread wrote before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], WORD.as_pointer())
        builder.store_atomic(arguments[1], pointer, "release", 8)
        return context.get_dummy_value()

    return types.none(types.intp, types.intp), generate


@intrinsic
def call_address(typing_context: Any, function: Any, argument: Any) -> Any:
    """Calls the C function `int64 f(int64)` at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        signature = ir.FunctionType(WORD, [WORD]).as_pointer()
        return builder.call(builder.inttoptr(arguments[0], signature), [arguments[1]])

    return types.intp(types.intp, types.intp), generate


@intrinsic
def address_of(typing_context: Any, function: Any) -> Any:
    """Address of an `@inner` function of one integer, as a C function that cannot raise.

    The C function is emitted in the caller's own module, so that Numba can cache the caller.
    """
    function.get_call_type(typing_context, (types.intp,), {})  # compiles it

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        compiled = function.dispatcher.overloads[(types.intp,)]
        context.add_linking_libs([compiled.library])
        entry = ir.Function(
            builder.module,
            ir.FunctionType(WORD, [WORD]),
            f"entry.{compiled.fndesc.mangled_name}",
        )
        entry.linkage = "internal"
        body = ir.IRBuilder(entry.append_basic_block())
        target = context.declare_function(builder.module, compiled.fndesc)
        _, result = context.call_conv.call_function(
            body, target, types.intp, (types.intp,), entry.args
        )
        body.ret(result)
        return builder.ptrtoint(entry, WORD)

    return types.intp(function), generate


def c_function(name: str) -> Any:
    """The C function `int64 f(int64)` of this name, which is looked up when a kernel is loaded."""

    @intrinsic
    def call(typing_context: Any, argument: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            signature = ir.FunctionType(WORD, [WORD])
            function = cgutils.get_or_insert_function(builder.module, signature, name)
            return builder.call(function, arguments)

        return types.intp(types.intp), generate

    return call


def name_function(name: str, address: int) -> None:
    """Gives a function a name, under which kernels that are loaded later find it (`c_function`)."""
    binding.add_symbol(name, address)


malloc = c_function("malloc")
free = c_function("free")


@intrinsic
def give_back(typing_context: Any, start: Any, size: Any) -> Any:
    """`madvise(start, size, MADV_DONTNEED)`: returns whole pages to Linux; they then read as zeros.

    Returns 0 on success.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = ir.IntType(32)
        kind = ir.FunctionType(number, [WORD, WORD, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "madvise")
        return builder.sext(builder.call(function, [*arguments, number(DONTNEED)]), WORD)

    return types.intp(types.intp, types.intp), generate


@intrinsic
def copy(typing_context: Any, target: Any, source: Any, size: Any) -> Any:
    """`memcpy(target, source, size)` of bytes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, source, size = arguments
        places = (builder.inttoptr(place, cgutils.voidptr_t) for place in (target, source))
        cgutils.raw_memcpy(builder, *places, size, 1)
        return context.get_dummy_value()

    return types.none(types.intp, types.intp, types.intp), generate


@intrinsic
def clear(typing_context: Any, start: Any, size: Any) -> Any:
    """`memset(start, 0, size)` of bytes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start, size = arguments
        place = builder.inttoptr(start, cgutils.voidptr_t)
        cgutils.memset(builder, place, size, 0)
        return context.get_dummy_value()

    return types.none(types.intp, types.intp), generate


@operation(types.intp, types.intp)
def read_eight(builder: Any, address: Any) -> Any:
    """Eight bytes, the first in the lowest bits."""
    return builder.load(builder.inttoptr(address, ir.IntType(64).as_pointer()), align=1)


@operation(types.intp, types.intp)
def read_one(builder: Any, address: Any) -> Any:
    """One byte."""
    pointer = builder.inttoptr(address, ir.IntType(8).as_pointer())
    return builder.zext(builder.load(pointer), ir.IntType(64))


def _writes(width: int) -> Any:
    """Makes a function that writes the lowest bits of a number to an address."""

    @operation(types.void, types.intp, types.intp)
    def write(builder: Any, address: Any, value: Any) -> Any:
        kind = ir.IntType(width)
        pointer = builder.inttoptr(address, kind.as_pointer())
        builder.store(builder.trunc(value, kind), pointer, align=1)

    return write


write_word, write_short = _writes(32), _writes(16)
