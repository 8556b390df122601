"""How many blocks fit, in numbers by hand; and what the refusal says, number by number."""

import re
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine.errors import OutOfMemoryError
from jax_engine.operations import Device
from jax_engine.worker import memory
from jax_engine.worker.memory import MemoryProfile, check_longest_sequence_fits, useful_blocks

GIB = 2**30


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Device:
    """A device of 1000 bytes, half of them for an engine."""
    device = Device("one", in_host_memory=request.param, memory_share=0.5)
    monkeypatch.setattr(memory, "this_device", lambda: device)
    monkeypatch.setattr(memory, "memory_bytes", lambda: 1000)
    return device


def profile(share: float | None, weights: int, useful: int) -> MemoryProfile:
    return memory.profile_memory(
        share=share, weights=weights, block=7, useful_blocks=useful, step_bytes=lambda: 40
    )


@pytest.mark.parametrize("device", [True], indirect=True)
def test_in_host_memory_the_share_is_the_cache_s_alone(device: Device) -> None:
    assert profile(None, 300, 99) == MemoryProfile(1000, 500, 300, 0, 7, 71)
    assert profile(0.25, 300, 99) == MemoryProfile(1000, 250, 300, 0, 7, 35)
    assert profile(None, 300, 70).num_blocks == 70
    assert profile(0.001, 300, 99).num_blocks == 0


@pytest.mark.parametrize("device", [False], indirect=True)
def test_elsewhere_weights_and_the_largest_step_come_first(device: Device) -> None:
    assert profile(None, 300, 99) == MemoryProfile(1000, 500, 300, 40, 7, 22)  # 160 bytes
    assert profile(0.9, 300, 99) == MemoryProfile(1000, 900, 300, 40, 7, 80)
    assert profile(0.9, 300, 3).num_blocks == 3
    assert profile(None, 461, 99).num_blocks == 0
    assert profile(None, 499, 99).num_blocks == 0, "not below"


@given(st.integers(1, 10**5), st.integers(1, 1000), st.integers(1, 256))
def test_useful_blocks_hold_every_sequence_and_the_watermark(
    length: int, count: int, block_size: int
) -> None:
    """Each with a block more than its tokens need; a hundredth of the blocks stays free."""
    wanted = ceil(count * (ceil(Fraction(length, block_size)) + 1) / Fraction(99, 100))
    assert wanted <= useful_blocks(length, count, block_size) <= wanted + 1
    assert useful_blocks(32, 3, 4) == 28  # 27 and the watermark


@pytest.mark.parametrize("num_blocks", [0, 1, 2, 5, 99, 100, 101, 250])
@pytest.mark.parametrize("block_size", [1, 2, 4, 16])
@pytest.mark.parametrize("overridden", [False, True])
def test_the_longest_that_fits_is_found_by_trying(
    num_blocks: int, block_size: int, overridden: bool
) -> None:
    """It passes with the length or the number of blocks that the refusal of another one names."""

    def refusal(length: int, blocks: int) -> str:
        found = MemoryProfile(9 * GIB, 8 * GIB, 7 * GIB, 6 * GIB, GIB, blocks)
        try:
            check_longest_sequence_fits(
                found, max_model_len=length, block_size=block_size, overridden=overridden
            )
        except OutOfMemoryError as error:
            return str(error)
        return ""

    lengths = range(1, num_blocks * block_size + 2)
    longest = max((n for n in lengths if not refusal(n, num_blocks)), default=0)
    spare = 1 + num_blocks // 100
    assert longest == max(0, num_blocks - spare) * block_size
    text = refusal(longest + 1, num_blocks)
    needed = ceil((longest + 1) / block_size) + spare
    assert text.startswith(
        f"max_model_len {longest + 1} needs {needed} KV blocks of {block_size} tokens "
        f"({needed}.00 GiB), but there are {num_blocks}: memory 9.00 GiB, of which 8.00 GiB may be "
        f"used; weights 7.00 GiB, step 6.00 GiB. The longest that fits is {longest} tokens: "
    )
    advice = text.partition("tokens: ")[2]
    if overridden:
        named = re.fullmatch(r"set num_gpu_blocks_override=(\d+)\.", advice)
        assert named and int(named[1]) == needed
    elif longest > 1:
        assert advice == f"set max_model_len={longest}."
    else:
        assert advice == "set a larger gpu_memory_utilization."
