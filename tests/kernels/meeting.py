"""One of several processes that meet: `python -m tests.kernels.meeting RANK SIZE FD WHAT`."""

import os
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cpu_kernels.meeting.shared_memory import CHUNK
from jax_engine.parallel.collectives import ProcessRank, join_group

# Less than a chunk of the memory, exactly one, more than two, and nothing.
SHAPES = ((3,), (CHUNK // 4,), (2 * CHUNK // 4 + 5,), (0, 4), ())
DTYPES = ("float32", "bfloat16", "int8")
TURNS = 50


def brought(rank: int, shape: tuple[int, ...], dtype: str) -> Any:
    numbers = np.arange(int(np.prod(shape))).reshape(shape) % 50 + rank
    return jnp.asarray(numbers, dtype)


def gathers(rank: int, size: int) -> None:
    """Every shape and dtype; many turns in one program; two that nothing else puts in order."""
    from cpu_kernels.meeting.gather import after, gathered, this_rank

    assert int(jax.jit(this_rank)()) == rank
    for shape in SHAPES:
        for dtype in DTYPES:
            every = jax.jit(lambda x: gathered(x, size))(brought(rank, shape, dtype))
            wanted = [brought(one, shape, dtype) for one in range(size)]
            np.testing.assert_array_equal(np.asarray(every), np.stack(wanted))

    @jax.jit
    def many(x: Any) -> Any:
        def turn(x: Any, _: None) -> Any:
            return gathered(x, size)[size - 1 - rank] * 0.5 + x * 0.25, None

        return jax.lax.scan(turn, x, None, length=TURNS)[0]

    found = np.asarray(many(jnp.full(7, rank, jnp.float32)))
    values = np.arange(size, dtype=np.float32)
    for _ in range(TURNS):
        values = values[::-1] * 0.5 + values * 0.25
    np.testing.assert_array_equal(found, np.full(7, values[rank]))

    @jax.jit
    def two(x: Any) -> Any:
        one = gathered(x, size)
        other = gathered(after(x + 100, one), size)
        return one, other

    for _ in range(TURNS):
        one, other = two(jnp.full(3, rank, jnp.float32))
        assert (other[:, 0] - one[:, 0] == 100).all() and one[rank, 0] == rank


def waits(rank: int, size: int) -> None:
    """The last one never comes."""
    from cpu_kernels.meeting.gather import gathered

    turn = jax.jit(lambda x: gathered(x, size))
    turn(jnp.zeros(3)).block_until_ready()
    print("met", flush=True)
    if rank == size - 1:
        sys.stdin.read()
    turn(jnp.zeros(3)).block_until_ready()
    print("went on", flush=True)


if __name__ == "__main__":
    rank, size, fd = map(int, sys.argv[1:4])
    join_group(ProcessRank(rank, size, fd))
    os.close(fd)
    {"gathers": gathers, "waits": waits}[sys.argv[4]](rank, size)
