"""XLA's foreign function interface: a Numba function that XLA calls in the middle of a program.

A handler gets the address of one C struct, the call frame (`xla/ffi/api/c_api.h`, which jaxlib
brings along), whose fields are all 64 bits wide or padded to that: it is read as an array of
words. Arrays arrive as buffers with dtype, address and shape. No Python runs, no lock is taken.
"""

import ctypes
from typing import Any

import jax

from cpu_kernels.compiling.jit import inner
from cpu_kernels.simd.structs import int64s

HANDLER = "int64(int64)"
# Words of a call frame; `simd/structs.py` knows where operands and results are.
EXTENSION, API, CONTEXT, STAGE = 1, 2, 3, 4
EXECUTE = 3
METADATA = 1
# The major version of the interface that this file speaks; XLA refuses the handler if its own is
# another. Minor versions only add fields at the ends of structs, so any of them will do.
MAJOR = 0
API_VERSION = 4  # the word of XLA's table of functions that holds its major and minor version
LOW = 0xFFFFFFFF  # of an int32 padded to a word


@inner
def executes(frame: int) -> bool:
    """Whether this call is to do the work. If XLA asks for the version, writes it down.

    XLA asks at registration, and refuses a handler that speaks of a newer version than its own. The
    answer is found at run time, so that code in Numba's cache serves every version of jaxlib.
    """
    fields = int64s(frame)
    if fields[EXTENSION] != 0:
        extension = int64s(fields[EXTENSION])
        if extension[1] & LOW == METADATA:
            minor = int64s(fields[API])[API_VERSION] >> 32
            int64s(extension[3])[3] = MAJOR | minor << 32
            return False
    return fields[STAGE] & LOW == EXECUTE


def register(name: str, handler: Any) -> None:
    """Makes a handler known to XLA's CPU backend under a name.

    Programs in the persistent compilation cache refer to it by that name alone: a handler that
    reads its operands in another way needs another name.
    """
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    jax.ffi.register_ffi_target(name, new(handler.address, None, None), platform="cpu")
