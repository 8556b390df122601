"""The oracle's random numbers: published answers, and what a generator must be like (I37, I49)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.random_numbers import derive_seed, fold_in, request_seed, threefry2x32, uniform

# From Random123, which the authors of Threefry published: key, block, the block encrypted.
PUBLISHED = [
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
]
# (seed, position, jax.random.uniform(jax.random.fold_in(key of seed, position)) * 2**23)
JAX = [
    (0, 0, 7065843),
    (0, 5, 6191299),
    (1, 5, 387497),
    (2**32, 5, 2073340),
    (2**64 - 1, 2047, 5990551),
    (1234567890123456789, 77, 8099380),
]


@pytest.mark.parametrize("key, block, encrypted", PUBLISHED)
def test_threefry_gives_the_published_answers(key, block, encrypted) -> None:
    assert threefry2x32(key, block) == encrypted


def test_i37_uniform_is_jax_s() -> None:
    assert fold_in((1, 2), 3) == (2052595727, 1880214352)  # as jax.random.fold_in has it
    assert [uniform(seed, position) * 2**23 for seed, position, _ in JAX] == [u for *_, u in JAX]


def test_uniform_numbers_of_neighbours_are_not_related() -> None:
    """Neighbours differ by seed or by position. Any integer is a seed."""
    grid = np.array([[uniform(seed, position) for position in range(50)] for seed in range(50)])
    assert (grid >= 0).all() and (grid < 1).all() and len(np.unique(grid)) == 2500
    assert abs(grid.mean() - 0.5) < 0.02
    for neighbours in (grid[1:] - grid[:-1], grid[:, 1:] - grid[:, :-1]):
        assert abs((neighbours**2).mean() - 1 / 6) < 0.02  # of two independent uniform numbers
    assert uniform(-1, 0) == uniform(2**64 - 1, 0) != uniform(1, 0)


@given(seed=st.integers(0, 2**64 - 1), position=st.integers(0, 2**20), bit=st.integers(0, 63))
def test_i37_each_bit_of_a_seed_counts(seed: int, position: int, bit: int) -> None:
    """Checked over 4 positions, since two numbers of 23 bits may be equal by chance."""
    positions = range(position, position + 4)
    changed = [uniform(seed ^ 1 << bit, at) for at in positions]
    assert changed != [uniform(seed, at) for at in positions]


def test_i37_seeds_of_samples_are_the_published_splitmix64_numbers() -> None:
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [derive_seed(1234567, i) for i in range(1, 5)] == [x >> 1 for x in published]


@given(seed=st.integers(-(2**63), 2**63 - 1))
def test_i37_every_sample_has_a_seed_of_its_own(seed: int) -> None:
    derived = [derive_seed(seed, i) for i in range(20)]
    assert derived[0] == seed and len(set(derived)) == 20
    assert all(0 <= x < 2**63 for x in derived[1:])


def test_a_request_s_seed_is_its_own_or_one_for_its_number() -> None:
    """No two requests of 20 engines share one; two of them are known, so that they stay."""
    assert [request_seed(seed, 3, 8) for seed in (0, 5, -2, 2**64 - 1)] == [0, 5, -2, 2**64 - 1]
    drawn = {request_seed(None, engine, number) for engine in range(20) for number in range(20)}
    assert len(drawn) == 400 and max(drawn) > 2**63  # all 64 bits are used
    assert request_seed(None, 3, 8) == request_seed(-1, 3, 8) in drawn
    known = [15793235383387715774, 5836529245451711556]
    assert [request_seed(None, 0, number) for number in range(2)] == known
