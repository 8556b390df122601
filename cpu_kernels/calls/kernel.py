"""`@cpu_kernel` makes a handler that XLA calls from the body for one work item."""

from collections.abc import Callable
from types import FunctionType
from typing import Any

from numba import cfunc

from cpu_kernels.calls import frame as frames
from cpu_kernels.calls.frame import HANDLER, register
from cpu_kernels.calls.threads import THREADS, claim, done, frame_of, leave, share, sit_down
from cpu_kernels.compiling import jit
from cpu_kernels.simd.memory import address_of, free, malloc
from cpu_kernels.simd.structs import Call, view


def cpu_kernel(
    name: str,
    *,
    operands: str,
    results: str,
    items: Callable[[Any], int],
    scratch: Callable[[Any], int] | None = None,
    finish: Callable[[Any], None] | None = None,
    neighbours: bool = False,
) -> Callable[[Callable[..., None]], Any]:
    """Declares a kernel and makes it known to XLA's CPU backend; its code is kept in Numba's cache.

    The decorated function is the body for one work item: `body(call, item)`. A call's buffers are
    attributes by name: `call.x.shape[0]`, `call.x.address` (see `simd/structs.py`). Bodies run on
    several threads at once, each item once. The body and the functions below must be `@inner`.

    Args:
        name: the kernel's name for `jax.ffi.ffi_call`. Programs in the persistent compilation cache
            refer to it by that name alone: a kernel that reads its operands in another way needs
            another name.
        operands: names of the operands, in order.
        results: names of the results, in order.
        items: returns a call's number of work items. It runs once, first, on the calling thread.
        scratch: returns the bytes of uninitialised memory for each thread's items. Their address is
            the body's third argument, 0 for no bytes. None: the body has two arguments.
        finish: runs once, after the last item.
        neighbours: give each thread consecutive items, as far as possible.

    Returns:
        A decorator that returns the handler.
    """
    kind = Call(name, operands.split(), results.split())

    def decorate(body: Any) -> Any:
        makes = {
            "as_call": view(kind),
            "items_of": items,
            "scratch_of": scratch or _no_scratch,
            "work": body if scratch else jit.inner(_with(_without_scratch, name, body=body)),
            "finish_call": finish or _nothing,
            "ranges": THREADS if neighbours else 1,
        }
        task = jit.inner(_with(_task, name, **makes))
        handler = _with(_handler, name, **makes, task=task)
        compiled = jit.cached(cfunc, HANDLER)(handler)
        register(name, compiled)
        return compiled

    return decorate


def _task(block: int) -> int:
    """Works on a call's items until none is left."""
    seat, memory = sit_down(block), -1  # not asked for yet
    while True:
        item = claim(block, seat)
        if item < 0:
            if memory > 0:
                free(memory)
            return leave(block)
        call = as_call(frame_of(block))
        if memory < 0:
            size = scratch_of(call)
            memory = malloc(size) if size > 0 else 0
        work(call, item, memory)
        done(block)


def _handler(frame: int) -> int:
    """The handler: one call by XLA."""
    if not frames.executes(frame):
        return 0
    call = as_call(frame)
    count = items_of(call)
    if count > 0:
        share(frame, count, ranges, address_of(task))
    finish_call(call)
    return 0


def _without_scratch(call: Any, item: int, memory: int) -> None:
    body(call, item)


@jit.inner
def _no_scratch(call: Any) -> int:
    return 0


@jit.inner
def _nothing(call: Any) -> None:
    pass


def _with(template: Any, kernel: str, **names: Any) -> Any:
    """A copy of a template, with these values for its names.

    The names are globals, not variables of a closure: Numba's cache would pickle closures for its
    key, which would differ in each process. The qualified name gives the cache's files their name.
    """
    function = FunctionType(template.__code__, template.__globals__ | names, template.__name__)
    function.__qualname__ = f"{kernel}.{template.__name__}"
    return function


# Names in the templates; `_with` gives them values.
as_call: Any
items_of: Any
scratch_of: Any
work: Any
finish_call: Any
body: Any
task: Any
ranges: int
