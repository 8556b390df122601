"""Each limit of a case is judged: what exceeds it is named, what keeps it passes."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from pallas_kernels.aot.collectives import Collective
from pallas_kernels.aot.compiling import Outcome, Program, problems_of
from pallas_kernels.aot.ptx import Resources
from pallas_kernels.aot.thunks import Starts

CACHE = jax.ShapeDtypeStruct((10, 8), jnp.bfloat16)  # 160 bytes
MOST = Starts(host=4, graphs=3, updates=2, kernels=50)
PROGRAM = Program(
    lambda cache: cache,
    (CACHE,),
    donated=(0,),
    temporary=99,
    launches=16,
    starts=MOST,
    exchanges=66,
)
TALKS = [Collective("all-gather", 65, 1024), Collective("all-reduce", 1, 8)]


def outcome(spilled: int = 0, **changes: Any) -> Outcome:
    kernels = [Resources("decode", registers=64, spilled=spilled, shared=0)]
    fine: dict[str, Any] = {"kernels": kernels, "temporary": 99, "aliased": 160, "launches": 16}
    fine |= {"starts": MOST, "collectives": TALKS}
    return Outcome("step", "h200", **fine | changes)


def test_a_case_at_its_limits_passes() -> None:
    assert problems_of(outcome(), PROGRAM) == []


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"spilled": 8}, "decode spills 8 bytes"),
        ({"copies": ["%copy = bf16[10,8] copy(%cache)"]}, "copies: %copy"),
        ({"temporary": 100}, "100 bytes of temporaries > 99"),
        ({"launches": 17}, "a turn of a loop starts 17 kernels > 16"),
        ({"starts": MOST._replace(host=5)}, "host in one run: 5 > 4"),
        ({"starts": MOST._replace(graphs=4)}, "graphs in one run: 4 > 3"),
        ({"starts": MOST._replace(updates=3)}, "updates in one run: 3 > 2"),
        ({"starts": MOST._replace(kernels=51)}, "kernels in one run: 51 > 50"),
        ({"differing": ["paged_decode"]}, "paged_decode: other instructions for another number"),
        ({"collectives": [*TALKS, TALKS[1]]}, "devices talk 67 times > 66"),
        ({"aliased": 159}, "only 159 of 160 donated bytes are reused"),
        ({"kernels": []}, "no kernel was found"),
    ],
)
def test_what_exceeds_a_limit_is_named(changes: dict[str, Any], problem: str) -> None:
    found = problems_of(outcome(**changes), PROGRAM)
    assert len(found) == 1 and found[0].startswith(problem)


def test_each_device_reuses_its_own_share_of_what_is_donated() -> None:
    """Shapes are those of all devices together."""
    shared = dataclasses.replace(PROGRAM, devices=2)
    assert problems_of(outcome(aliased=80), shared) == []
    assert problems_of(outcome(aliased=79), shared) == ["only 79 of 80 donated bytes are reused"]
