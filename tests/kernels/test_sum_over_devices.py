"""The sum over devices: its order, what its kernel adds up, and what is refused.

The exchange itself needs several GPUs: `make aot` compiles it. On devices of a CPU the sum is part
of the engine's tests (`tests/parallel`).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from pallas_kernels import sum_over_devices
from pallas_kernels.mosaic import one_shot_sum
from pallas_kernels.tree_sum import in_tree

WHOLE = PartitionSpec()


def over_one(function: Any) -> Any:
    """`function` on a mesh of one device."""
    mesh = Mesh(np.array(jax.devices()[:1]), ("tensor",))
    return jax.shard_map(function, mesh=mesh, in_specs=WHOLE, out_specs=WHOLE, check_vma=False)


def test_neighbours_are_added_first() -> None:
    """1 is lost beside 2^24 in float32, but not beside another 1."""
    parts = [jnp.float32(one) for one in (1, 1, 2**24, 0)]
    assert in_tree(parts) == 2**24 + 2
    assert in_tree([*parts[1:], parts[0]]) == 2**24  # (1 + 2^24) + (0 + 1)
    assert in_tree(parts[:3]) == 2**24 + 2 and in_tree(parts[:1]) == 1


def test_of_one_device_it_is_what_that_has() -> None:
    x = jnp.arange(12, dtype=jnp.float32).reshape(3, 4)
    np.testing.assert_array_equal(over_one(lambda x: sum_over_devices(x, "tensor"))(x), x)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("devices", [2, 3, 4, 8])
def test_the_kernel_adds_up_what_has_come_as_a_tree(devices: int, dtype: Any) -> None:
    """To the bit, with more tiles than thread blocks, and a last turn that not all blocks have."""
    values = np.random.default_rng(devices).normal(size=(devices, 5 * one_shot_sum.TILE))
    received = jnp.asarray(values, dtype)
    found = one_shot_sum.added_up(received, interpret=True)
    np.testing.assert_array_equal(found, in_tree([*received]))


@pytest.fixture(autouse=True)
def two_sms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_shot_sum, "USUAL_SMS", 2)
    assert one_shot_sum._blocks(5 * one_shot_sum.TILE) == 2


@pytest.mark.parametrize(
    ("size", "dtype", "reason"),
    [
        (0, "float32", "x of 0 numbers"),
        (1000, "float32", "a multiple of 1024 is needed"),
        (1024, "float16", "sums of float16"),
    ],
)
def test_what_the_kernel_lacks_is_said(size: int, dtype: str, reason: str) -> None:
    assert reason in str(one_shot_sum.missing(size, jnp.dtype(dtype)))
    assert one_shot_sum.missing(1024, jnp.dtype("float32")) is None


@pytest.mark.parametrize(
    ("backend", "reason"),
    [("mosaic", "neither semaphores"), ("triton", "lacks this operation"), ("x", "does not exist")],
)
def test_a_backend_that_cannot_is_refused(backend: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        over_one(lambda x: sum_over_devices(x, "tensor", backend=backend))(jnp.zeros(1024))


def test_the_first_backend_that_can_is_taken() -> None:
    x = jnp.ones(1024)
    found = over_one(lambda x: sum_over_devices(x, "tensor", backend=("mosaic", "xla")))(x)
    np.testing.assert_array_equal(found, x)
