"""What devices that share a model say to each other inside of a step, and which of them this is.

With one device each function returns its argument: nothing is added to the program. Devices of one
process talk by XLA's collectives. On a CPU each process is a device: it has one share of the
weights and of the KV cache, and no mesh. Those of one stage of the model meet in memory of their
own, by a kernel. Either way numbers are added in the same order.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Shaped

from cpu_kernels.meeting.shared_memory import SharedMemory
from jax_engine.errors import ConfigError
from pallas_kernels.backends import Backend
from pallas_kernels.sum_over_devices import sum_over_devices
from pallas_kernels.tree_sum import in_tree


class ProcessRank(NamedTuple):
    """What a process gets to know before it builds its share.

    Attributes:
        rank: From 0, among the processes of its stage.
        size: How many processes its stage has.
        memory: The memory in which they meet: an inherited descriptor, or a path to open.
    """

    rank: int
    size: int
    memory: int | str
    stage: int = 0
    num_stages: int = 1

    def opened(self) -> SharedMemory:
        """The memory, mapped into this process."""
        where = self.memory
        own = os.dup(where) if isinstance(where, int) else os.open(where, os.O_RDWR | os.O_CLOEXEC)
        return SharedMemory(self.size, own)


def process_ranks(size: int, num_stages: int = 1) -> tuple[list[SharedMemory], list[ProcessRank]]:
    """New memory for each stage, of so many processes, and the seats: those of the first stage
    first.
    """
    memories = [SharedMemory(size) for _ in range(num_stages)]
    return memories, [
        ProcessRank(rank, size, memory.fd, stage, num_stages)
        for stage, memory in enumerate(memories)
        for rank in range(size)
    ]


_own: ProcessRank | None = None
_memory: SharedMemory | None = None


def join_group(seat: ProcessRank) -> None:
    """Makes this process one of several, until it ends.

    Raises:
        ConfigError: The kernels with which they meet do not run here.
    """
    global _own, _memory
    _own, _memory = seat, seat.opened()
    if seat.size == 1:
        return
    from cpu_kernels.compiling.availability import failure, failure_on_demand

    reason = failure() or failure_on_demand("several processes")
    if reason is not None:
        raise ConfigError(
            f"tensor_parallel_size {seat.size} needs the kernels for this CPU, with which its "
            f"processes meet ({reason}): set distributed_executor_backend='uni' and "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={seat.size}"
        )
    from cpu_kernels.meeting.place import take_place

    take_place(_memory, seat.rank)


def own_rank() -> int | None:
    """Which of several processes of a stage this is; None: it is alone with its devices."""
    return None if _own is None or _own.size == 1 else _own.rank


def own_stage() -> tuple[int, int]:
    """Which stage of the model this process has, and how many there are."""
    return (0, 1) if _own is None else (_own.stage, _own.num_stages)


def others_gave_up() -> bool:
    """Whether a process of this model has failed, so that nobody must wait for it."""
    return _memory is not None and _memory.aborted


AXIS = "tensor"  # the name of the devices' axis in a step
# In how many parts one device and all devices together add up a row, if that divides it: a sum has
# the same bits on 1, 2, 4 or 8 devices.
MOST_LEAVES = 8


def leaves_of(size: int, shared_by: int) -> int:
    """In how many parts a device adds up its share of a row of `size` numbers.

    A part has an even number of them, so that pairs of 16-bit numbers stay together.
    """
    return _leaves(size * shared_by, shared_by, each=2)


def leaves_of_experts(count: int, shared_by: int) -> int:
    """The same of the outputs of `count` experts, which devices have whole."""
    return _leaves(count, shared_by, each=1)


def _leaves(count: int, shared_by: int, *, each: int) -> int:
    leaves = MOST_LEAVES
    while leaves > 1 and count % (each * leaves):
        leaves //= 2
    return leaves // shared_by if leaves % shared_by == 0 else 1


def this_rank() -> Int[Array, ""]:
    """The number of the device that runs this, from 0."""
    return lax.axis_index(AXIS) if own_rank() is None else _meeting().this_rank()


def gathered(x: Shaped[Array, "..."], shared_by: int) -> Shaped[Array, "devices ..."]:
    """What each device has as x, by rank."""
    every: Array = (
        lax.all_gather(x, AXIS) if own_rank() is None else _meeting().gathered(x, shared_by)
    )
    return every


def in_turn(
    x: Shaped[Array, "..."], before: Shaped[Array, "..."], shared_by: int
) -> Shaped[Array, "..."]:
    """x, for what devices say to each other behind `before`, which does not depend on it.

    Without it, processes might say one thing first and others the other. XLA orders its own
    collectives.
    """
    if shared_by == 1 or own_rank() is None:
        return x
    later: Array = _meeting().after(x, before)
    return later


def _meeting() -> Any:
    from cpu_kernels.meeting import gather

    return gather


def on_first(x: Float[Array, "..."] | None, shared_by: int) -> Float[Array, "..."] | None:
    """What is part of a sum over the devices once: zeros on all devices but the first."""
    if shared_by == 1 or x is None:
        return x
    return jnp.where(this_rank() == 0, x, 0)


def own_part(
    x: Float[Array, "..."], shared_by: int, *, axis: int = 0, copies: int = 1
) -> Float[Array, "..."]:
    """This device's part of numbers that belong to the heads of all devices.

    Args:
        axis: That of the heads.
        copies: How many devices have the same heads.
    """
    if shared_by == 1:
        return x
    size = x.shape[axis] * copies // shared_by
    own: Array = lax.dynamic_slice_in_dim(x, this_rank() // copies * size, size, axis)
    return own


@jax.named_scope("heads_of_devices")
def heads_of_all(
    q: Float[Array, "T H D"], k: Float[Array, "T K D"], shared_by: int, copies: int
) -> tuple[Float[Array, "T H_all D"], Float[Array, "T K_all D"]]:
    """The queries and keys of all devices' heads in one message, each head once.

    Args:
        copies: How many devices have the same KV heads.
    """
    every = gathered(jnp.concatenate([q, k], axis=1), shared_by).swapaxes(0, 1)
    tokens, _, _, size = every.shape
    queries, keys = every[:, :, : q.shape[1]], every[:, ::copies, q.shape[1] :]
    return queries.reshape(tokens, -1, size), keys.reshape(tokens, -1, size)


_sums_by: ContextVar[Backend] = ContextVar("sums_by", default="xla")


@contextmanager
def sums_by(backend: Backend) -> Iterator[None]:
    """Within it steps are traced with this backend of `sum_over_devices`."""
    before = _sums_by.set(backend)
    try:
        yield
    finally:
        _sums_by.reset(before)


@jax.named_scope("sum_over_devices")
def added(x: Float[Array, "T E"], shared_by: int) -> Float[Array, "T E"]:
    """The sum of the devices' partial products, the same to the bit on each of them.

    They are gathered and added as a tree: first those of neighbours. So the order depends on
    nothing that a library might choose.
    """
    if shared_by == 1:
        return x
    if own_rank() is None:
        return sum_over_devices(x, AXIS, backend=_sums_by.get())
    return in_tree([*gathered(x, shared_by)])


@jax.named_scope("rows_of_devices")
def chosen(
    rows: Float[Array, "T E"], ids: Int[Array, " T"], share: int, shared_by: int
) -> Float[Array, "T E"]:
    """Each token's row, from the device that holds it.

    Args:
        rows: What this device looked up: `ids` less those of the devices before it, clipped.
        share: How many rows each device holds.
    """
    if shared_by == 1:
        return rows
    own = (ids // share == this_rank())[:, None]
    mine = jnp.where(own, rows, 0)  # the sum is exact: all but one are zero
    found: Array = (
        lax.psum(mine, AXIS) if own_rank() is None else in_tree([*gathered(mine, shared_by)])
    )
    return found


def share_of_rows(rows: int, shared_by: int) -> int:
    """How many rows of a matrix each device has; those behind the last one are padding."""
    return -(-rows // shared_by)


@jax.named_scope("columns_of_devices")
def side_by_side(
    x: Float[Array, "R share"], size: int, shared_by: int
) -> Float[Array, "R columns"]:
    """What all devices have of each row, without padding behind the first `size` numbers."""
    if shared_by == 1:
        return x
    every: Array = (
        lax.all_gather(x, AXIS, axis=1, tiled=True)
        if own_rank() is None
        else jnp.concatenate([*gathered(x, shared_by)], axis=1)
    )
    return every[:, :size]
