"""The sum over the devices of a mesh, the same to the bit on each of them.

Parts are added as a tree: first those of neighbours, then these sums. A library's all-reduce may
choose any order, and another one for another size.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from pallas_kernels.backends import Backend, choose
from pallas_kernels.device import interpreting
from pallas_kernels.tree_sum import in_tree


def sum_over_devices(
    x: Float[Array, "..."], axis_name: str, *, backend: Backend = "xla"
) -> Float[Array, "..."]:
    """The sum of what each device along an axis of the mesh has as x. For use in `jax.shard_map`.

    Args:
        backend: "xla" gathers the parts by XLA's collective, then adds them. "mosaic" does both in
            one kernel, for messages so short that their latency counts. No GPU has timed it, so it
            is chosen only by name.

    Raises:
        ValueError: the backend does not support the call on this device.
    """
    name = choose(backend, lambda name: _missing(name, x))
    if name == "mosaic":
        from pallas_kernels.mosaic import one_shot_sum

        found: Array = one_shot_sum.add(x, axis_name)
        return found
    return in_tree([*lax.all_gather(x, axis_name)])


def _missing(name: str, x: Array) -> str | None:
    """Why a backend does not support a call, or None if it does."""
    if name == "xla":
        return None
    if name != "mosaic":
        return "this operation"
    if interpreting():
        return "an interpreter (JAX's has neither semaphores nor the memory of other devices)"
    from pallas_kernels.mosaic import one_shot_sum

    return one_shot_sum.missing(x.size, jnp.dtype(x.dtype))
