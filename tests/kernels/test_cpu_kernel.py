"""`@cpu_kernel`: operands by name, each work item once, and code that later processes find."""

import itertools
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cpu_kernels.calls.kernel import cpu_kernel
from cpu_kernels.calls.threads import THREADS, is_followed, range_of
from cpu_kernels.compiling import jit
from cpu_kernels.compiling.availability import ATTENTION, ON_DEMAND, OTHERS
from cpu_kernels.compiling.jit import inner
from cpu_kernels.compiling.parts import WholeCompiler
from cpu_kernels.simd.structs import int64s


@inner
def one_a_row(call: Any) -> int:
    return call.left.shape[0]


@inner
def one_word(call: Any) -> int:
    return 8


@inner
def difference(call: Any, item: int) -> None:
    call.out.float32[item] += call.left.float32[item] - call.right.int32[item]


@inner
def difference_in_scratch(call: Any, item: int, scratch: int) -> None:
    int64s(scratch)[0] = item
    difference(call, int64s(scratch)[0])


@inner
def count_in_the_end(call: Any) -> None:
    call.last.int32[0] = call.left.shape[0]


@pytest.mark.parametrize("neighbours", [False, True])
@pytest.mark.parametrize("scratch", [False, True])
def test_each_item_is_done_once(
    neighbours: bool, scratch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is kept: Numba's cache does not look at this file."""
    monkeypatch.setattr(jit, "cached", lambda compiler, kind: compiler(kind, **WHOLE))
    name = f"tests.difference.{neighbours}.{scratch}"
    cpu_kernel(
        name,
        operands="left right zeros",
        results="out last",
        items=one_a_row,
        scratch=one_word if scratch else None,
        finish=count_in_the_end,
        neighbours=neighbours,
    )(difference_in_scratch if scratch else difference)
    for size in (1, 2, 3, 100):
        left = np.arange(size, dtype=np.float32)
        right = np.arange(size, dtype=np.int32)[::-1].copy()
        results = (jax.ShapeDtypeStruct((size,), jnp.float32), jax.ShapeDtypeStruct((), jnp.int32))
        call = jax.ffi.ffi_call(name, results, input_output_aliases={2: 0})
        out, last = call(left, right, np.zeros(size, np.float32))
        np.testing.assert_array_equal(out, left - right)
        assert last == size


WHOLE: dict[str, Any] = {"pipeline_class": WholeCompiler}


@pytest.mark.parametrize("items", [1, 2, 3, 7, 64, 65])
def test_the_last_item_of_a_range_has_no_successor(items: int) -> None:
    ranges = [range_of.py_func(items, i, THREADS) for i in range(THREADS)]
    ends = {last - 1 for first, last in ranges if first < last}
    assert {i for i in range(items) if not is_followed.py_func(i, items)} == ends


LOAD = """
import importlib, sys
from numba.core import ccallback, event
compiled, handlers = [], []
class Compilations(event.Listener):
    def on_start(self, happening):
        compiled.append(happening.data["dispatcher"].py_func.__qualname__)
    def on_end(self, happening):
        pass
event.register("numba:compile", Compilations())
compile = ccallback.CFunc.compile
ccallback.CFunc.compile = lambda self: (compile(self), handlers.append(self.cache_hits))[0]
for name in sys.argv[1:]:
    importlib.import_module(name)
print(compiled, handlers)
"""


@pytest.mark.slow
def test_a_later_process_compiles_nothing() -> None:
    """The first of the two may have to; where code was not found again, the second one would."""
    command = [
        sys.executable,
        "-c",
        LOAD,
        ATTENTION,
        *OTHERS,
        *itertools.chain(*ON_DEMAND.values()),
    ]
    for _ in range(2):
        ended = subprocess.run(command, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
    own = [0]  # `meeting.place` says an address of its process: a few instructions, never kept
    assert ended.stdout.strip() == f"[] {[1] * 14 + own + [1] * 3}"
