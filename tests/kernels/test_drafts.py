"""Drafts: a few decodes of one sequence in a row of one step, whose context is read once."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cpu_kernels.attention.plan import FEW, MANY
from paged_conformance.kernel.cases import Case, fill, make_case
from paged_conformance.kernel.expected import assert_agrees
from paged_conformance.kernel.sizes import Sizes
from tests.kernels.kernel import Ours
from tests.meta.trees import ROOT

SIZES = Sizes(tokens=48, seqs=3, context=200)
numba = Ours("numba", SIZES)
# (B, K, H / K, D): blocks that do and do not divide a part, all ways to pad rows and vectors.
GEOMETRIES = (
    (16, 3, 3, 64),
    (1, 2, 1, 5),
    (24, 1, 4, 32),
    (100, 2, 5, 20),
    (256, 1, 8, 16),
    (3, 1, 9, 48),
)
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "narrow": {"window": 3, "sinks": True},
    "a part": {"window": 64, "alibi_slopes": True},
    "everything": {"window": 70, "soft_cap": 3.0, "alibi_slopes": True, "sinks": True},
}
COUNTS = [1, 2, 3, 5, FEW - 1, FEW, FEW + 1, 2 * FEW + 3, MANY, MANY + 1]


def alone(case: Case, position: int, token: int) -> Case:
    """A step of nothing but the first sequence's query at a position."""
    q = np.zeros_like(case.q)
    q[0] = case.q[token]
    lens, starts = np.zeros_like(case.context_lens), np.ones_like(case.query_start_loc)
    lens[0], starts[0] = position + 1, 0
    return replace(case, q=q, context_lens=lens, query_start_loc=starts)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8", "float8_e4m3fn"])
@given(
    options=st.sampled_from(list(OPTIONS)),
    geometry=st.sampled_from(GEOMETRIES),
    old=st.integers(0, 150) | st.sampled_from([56, 57, 63, 64, 120, 128]),
    count=st.sampled_from(COUNTS),
    prompts=st.integers(0, 6),
    spoilt=st.integers(0, 199),
    latent=st.booleans(),
    seed=st.integers(0, 99),
)
@example("plain", GEOMETRIES[0], 57, FEW, 0, 62, False, 0)
@example("a part", GEOMETRIES[2], 128, FEW, 3, 130, True, 0)
def test_i47_drafts_have_the_bits_of_decodes_alone(
    dtype: str,
    options: str,
    geometry: tuple[int, int, int, int],
    old: int,
    count: int,
    prompts: int,
    spoilt: int,
    latent: bool,
    seed: int,
) -> None:
    """Behind a prompt's last queries or not; a value that is no number reaches who sees it."""
    new = prompts + count
    case = make_case([(new, old), (1, 70), (3, 90)], seed, geometry, SIZES)
    if latent:
        case = case.values_in_keys()
    case = case.quantized(dtype) if dtype in ("int8", "float8_e4m3fn") else case.as_dtype(dtype)
    if dtype != "int8":
        cache, block = case.kv_cache.copy(), case.block_tables[0, spoilt // case.block_size]
        cache[:, :, block, :, spoilt % case.block_size] = np.nan
        case = case.with_cache(cache)
    asked = fill(OPTIONS[options], case)
    asked["prompt_lens"] = np.array([old + prompts, 0, 91], np.int32)
    together = numba(case, asked)[0]
    for token in range(prompts, new):
        one = numba(alone(case, old + token, token), asked)[0][0]
        np.testing.assert_array_equal(one, together[token], err_msg=f"query {token}")


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("count", COUNTS)
def test_drafts_agree_with_the_oracle(count: int, options: str) -> None:
    case = make_case([(count, 130), (1, 70), (3, 61)], count, GEOMETRIES[0], SIZES)
    asked = fill(OPTIONS[options], case)
    found = numba(case, asked | {"prompt_lens": np.full(3, 60, np.int32)})
    assert_agrees(found, case, asked)


# Replaces `find_run`, through which all keys and values are read, before anything is compiled.
COUNTING = """
import json, sys
import numpy as np
from cpu_kernels.attention import pages
from cpu_kernels.compiling.jit import inlined
from cpu_kernels.simd.memory import fetch_add

found, find_run = np.zeros(1, np.int64), pages.find_run
PLACE = found.ctypes.data

@inlined
def counting(work, which, seq, head, position, reach):
    run = find_run(work, which, seq, head, position, reach)
    fetch_add(PLACE, run[1])
    return run

pages.find_run = counting
import cpu_kernels.attention.attention_kernel  # compiles it here, not in another process
from tests.kernels.test_drafts import rows_of

for case in json.loads(sys.argv[1]):
    found[0] = 0
    rows_of(*case)
    print(int(found[0]))
"""
GEOMETRY = (16, 3, 2, 16)


def rows_of(dtype: str, count: int, old: int, window: int | None) -> None:
    """Attends to a context with `count` decodes behind it."""
    case = make_case([(count, old)], 0, GEOMETRY, SIZES)
    case = case.quantized(dtype) if dtype == "int8" else case.as_dtype(dtype)
    numba(case, {"window": window, "prompt_lens": np.zeros(3, np.int32)})


@pytest.mark.slow
def test_drafts_read_a_context_once(tmp_path: Path) -> None:
    """Keys and values that products are given: of k + 1 queries as many as of one."""
    cases = [
        (dtype, count, old, window)
        for dtype in ("float32", "bfloat16", "float16", "int8")
        for count, old, window in (
            (1, 170, None),
            (FEW, 170, None),
            (FEW, 60, None),
            (5, 150, 40),
            (2, 0, None),
            (FEW + 1, 100, None),
        )
    ]
    ended = subprocess.run(
        [sys.executable, "-c", COUNTING, json.dumps(cases)],
        cwd=ROOT,
        env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    _, kv_heads, _, _ = GEOMETRY
    expected = []
    for _, count, old, window in cases:
        seen = [(max(0, old + i - (window or 999) + 1), old + i + 1) for i in range(count)]
        bunches = [seen[i : i + FEW] for i in range(0, count, FEW)]
        positions = sum(bunch[-1][1] - bunch[0][0] for bunch in bunches)
        expected.append(2 * kv_heads * positions)
    assert [int(line) for line in ended.stdout.split()] == expected
