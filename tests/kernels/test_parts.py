"""Functions that are linked into others: right where they are called, not compiled alone."""

import numba
import pytest

from cpu_kernels.compiling.jit import inlined, inner
from cpu_kernels.compiling.parts import WholeCompiler


@pytest.mark.parametrize("part", [inner, inlined])
def test_a_part_has_no_machine_code_of_its_own(part: object) -> None:
    @part  # type: ignore[operator]
    def halved(x: int) -> int:
        return x // 2

    @part  # type: ignore[operator]
    def steps(x: int) -> int:
        count = 0
        while x > 1:
            count, x = count + 1, halved(x)
        return count

    @numba.njit(pipeline_class=WholeCompiler)
    def called(x: int) -> int:
        return steps(x) + halved(x)

    assert called(9) == 3 + 4
    for function in (halved, steps):
        (compiled,) = function.overloads.values()
        assert compiled.library.get_pointer_to_function(compiled.fndesc.mangled_name) == 0
    (compiled,) = called.overloads.values()
    assert compiled.library.get_pointer_to_function(compiled.fndesc.mangled_name) != 0
