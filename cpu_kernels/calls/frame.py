"""XLA's foreign function interface: XLA calls a Numba function in the middle of a program.

A handler gets the address of one C struct, the call frame (`xla/ffi/api/c_api.h`, which is part of
jaxlib). All of its fields are 64 bits wide or padded to that, so it is read as an array of words.
Arrays arrive as buffers with dtype, address and shape. A call runs no Python and takes no lock.
"""

import ctypes
from typing import Any

import jax

from cpu_kernels.compiling.jit import inner
from cpu_kernels.simd.structs import int64s

HANDLER = "int64(int64)"
# Words of a call frame; `simd/structs.py` has the positions of operands and results.
EXTENSION, API, CONTEXT, STAGE = 1, 2, 3, 4
EXECUTE = 3
METADATA = 1
# The interface's major version that this file implements; XLA refuses a handler with another major
# version. Minor versions only add fields at the ends of structs, so any minor version works.
MAJOR = 0
API_VERSION = 4  # the word of XLA's table of functions that holds its major and minor version
LOW = 0xFFFFFFFF  # mask of an int32 that is padded to a word


@inner
def executes(frame: int) -> bool:
    """Whether this call must do the work. If XLA asks for the version, writes the answer instead.

    XLA asks at registration, and refuses a handler whose version is newer than its own. The handler
    answers with XLA's own minor version, so code in Numba's cache works with every jaxlib.
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
