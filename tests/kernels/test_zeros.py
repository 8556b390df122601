"""Zeros that take no memory until they are written."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpu_kernels.zeros import PAGE, zeros

GIB = 1 << 30
DTYPES = ("float32", "bfloat16", "float16", "int8", "float8_e4m3fn")
sizes = st.one_of(st.integers(0, 40), st.integers(PAGE // 4 - 2, 9 * PAGE))


def resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * PAGE


@given(size=sizes, rows=st.integers(0, 3), dtype=st.sampled_from([*DTYPES, "int32"]))
def test_all_of_it_is_zero_where_something_else_was(size: int, rows: int, dtype: str) -> None:
    """The allocator gives the memory of the array before, which is full of ones, once more."""
    before = jax.block_until_ready(jnp.full((rows, size), -1, jnp.float32).astype(dtype))
    del before
    found = zeros((rows, size), dtype)
    assert found.shape == (rows, size) and found.dtype == dtype
    assert not np.asarray(found).view(np.uint8).any()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="Linux counts resident pages")
def test_it_takes_memory_where_it_is_written() -> None:
    before = resident_bytes()
    array = jax.block_until_ready(zeros((1024, GIB // 1024), "int8"))
    assert resident_bytes() - before < GIB // 16

    def write(array: Any) -> Any:
        return array.at[17, 5].set(3)

    array = jax.jit(write, donate_argnums=0)(array)
    assert array[17, 5] == 3 and int(array[17].sum()) == 3
    assert resident_bytes() - before < GIB // 16
