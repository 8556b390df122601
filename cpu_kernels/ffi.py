"""XLA's foreign function interface: a Numba function that XLA calls in the middle of a program.

A handler gets the address of one C struct, the call frame (`xla/ffi/api/c_api.h`, which jaxlib
brings along), whose fields are all 64 bits wide or padded to that: it is read as an array of
words. Arrays arrive as buffers with dtype, address and shape. No Python runs, no lock is taken.
"""

import ctypes
from typing import Any

import jax

from cpu_kernels.jit import inner
from cpu_kernels.native import word, words

HANDLER = "int64(int64)"
# Words of a call frame.
EXTENSION, API, CONTEXT, STAGE, OPERANDS, RESULTS = 1, 2, 3, 4, 9, 14
FRAME_WORDS = 22
EXECUTE = 3
METADATA = 1
# The major version of the interface that this file speaks; XLA refuses the handler if its own is
# another. Minor versions only add fields at the ends of structs, so any of them will do.
MAJOR = 0
API_VERSION = 4  # the word of XLA's table of functions that holds its major and minor version
# XLA's numbers of dtypes.
INT8, FLOAT16, FLOAT32, BFLOAT16, FLOAT8 = 2, 10, 11, 16, 20
LOW = 0xFFFFFFFF  # of an int32 padded to a word


@inner
def executes(frame: int) -> bool:
    """Whether this call is to do the work. If it asks for the version, that is written down.

    XLA asks at registration, and refuses a handler that speaks of a newer version than its own. The
    answer is found at run time, so that code in Numba's cache serves every version of jaxlib.
    """
    fields = words(frame, FRAME_WORDS)
    if fields[EXTENSION] != 0:
        extension = words(fields[EXTENSION], 4)
        if extension[1] & LOW == METADATA:
            minor = word(fields[API] + 8 * API_VERSION) >> 32
            words(extension[3], 4)[3] = MAJOR | minor << 32
            return False
    return bool(fields[STAGE] & LOW == EXECUTE)


@inner
def operand(frame: int, index: int) -> int:
    """Address of an operand's buffer; see `address` and `size`."""
    return int(word(word(frame + 8 * OPERANDS) + 8 * index))


@inner
def result(frame: int, index: int) -> int:
    """Address of a result's buffer."""
    return int(word(word(frame + 8 * RESULTS) + 8 * index))


@inner
def address(buffer: int) -> int:
    """Address of a buffer's first element; elements are in C order."""
    return int(word(buffer + 24))


@inner
def rank(buffer: int) -> int:
    """How many axes a buffer has."""
    return int(word(buffer + 32))


@inner
def size(buffer: int, axis: int) -> int:
    """Elements along one axis of a buffer."""
    return int(word(word(buffer + 40) + 8 * axis))


@inner
def dtype(buffer: int) -> int:
    """XLA's number of a buffer's element type, as in `xla_data.proto`."""
    return int(word(buffer + 16) & LOW)


def register(name: str, handler: Any) -> None:
    """Makes a handler known to XLA's CPU backend under a name.

    Programs in the persistent compilation cache refer to it by that name alone: a handler that
    reads its operands in another way needs another name.
    """
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    jax.ffi.register_ffi_target(name, new(handler.address, None, None), platform="cpu")
