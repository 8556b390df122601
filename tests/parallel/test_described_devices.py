"""Devices that are only described: a model's shares on them, and the step that is compiled there.

`make aot` compiles it, which takes XLA's compilers for GPUs. Here the devices are this CPU, several
times.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jax_engine.errors import ConfigError
from jax_engine.models.leaves import abstract_leaves
from jax_engine.models.model_loader import abstract_decoder, shapes_on
from jax_engine.parallel.collectives import added, sums_by
from jax_engine.parallel.cuts import cuts_of
from jax_engine.parallel.mesh import DeviceMesh
from jax_engine.worker import aot_mesh_cases
from pallas_kernels.aot.targets import TARGETS

BFLOAT16 = jnp.dtype(jnp.bfloat16)


def mesh_of(size: int) -> DeviceMesh:
    return DeviceMesh(size, described=tuple(jax.devices("cpu")[:1]) * size)


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("name", aot_mesh_cases.SHARED_MODELS)
def test_each_has_the_shares_that_the_cuts_say(name: str, size: int) -> None:
    """What is not cut, such as norms and routers, each has whole. Each has a KV head at least."""
    config = aot_mesh_cases.SHARED_MODELS[name]
    model = shapes_on(mesh_of(size), config, BFLOAT16)
    _, params = abstract_decoder(config.spec, BFLOAT16, False)
    whole = {k: one.matrix.shape for k, one in abstract_leaves(params, config.spec).items()}
    cuts = cuts_of(whole, config.spec, size)
    assert model.shares is not None and model.mesh is not None
    for leaf, one in model.shares.leaves.items():
        expected = list(whole[leaf])
        if leaf in cuts:
            expected[cuts[leaf].axis] = len(cuts[leaf].places[0])
        assert list(one.matrix.shape) == expected, leaf
    held = max(config.spec.num_kv_heads, size)
    assert model.config.spec.num_kv_heads == held
    assert model.num_parameters == sum(map(math.prod, whole.values()))
    in_place = [one for one in jax.tree.leaves(model.params) if one.shape[0] % size]
    assert in_place == []  # shares lie one behind the other along the first axis


def test_a_size_that_does_not_fit_is_refused_before_anything_is_compiled() -> None:
    config = aot_mesh_cases.SHARED_MODELS["llama-3.1-8b"]
    with pytest.raises(ConfigError, match="1, 2, 4, 8, 16 or 32, got 3"):
        shapes_on(mesh_of(3), config, BFLOAT16)


def test_fewer_described_devices_than_the_size_are_refused() -> None:
    with pytest.raises(ConfigError, match="tensor_parallel_size must be at most"):
        DeviceMesh(99, described=tuple(jax.devices("cpu")) * 2)


def test_the_cases_of_a_target() -> None:
    """None where the kernels of Hopper are not, and sums by the kernel on several devices only."""
    assert aot_mesh_cases.cases(TARGETS["a100"]) == {}
    names = list(aot_mesh_cases.cases(TARGETS["h100"]))
    assert names == list(aot_mesh_cases.cases(TARGETS["h200"]))
    assert set(aot_mesh_cases.QUICK) <= set(names)
    kernel = [name for name in names if aot_mesh_cases.ONE_SHOT in name]
    assert kernel and not any("-x1" in name for name in kernel)


def test_a_weight_s_share_that_looks_like_an_activation_is_not_watched() -> None:
    """A token has a row for each expert that it chooses."""
    steps = aot_mesh_cases.STEPS
    of_experts = aot_mesh_cases.SHARED_MODELS["qwen3-30b-a3b"]
    dense = aot_mesh_cases.SHARED_MODELS["llama-3.1-8b"]
    assert aot_mesh_cases._rows_of_activations(of_experts, steps["decode-64"]) == {64, 512}
    assert aot_mesh_cases._rows_of_activations(dense, steps["decode-64"]) == {64}


def test_sums_are_traced_with_the_backend_that_is_asked_for() -> None:
    mesh = dataclasses.replace(mesh_of(1))

    def traced(backend: Any) -> Any:
        def summed(x: jax.Array) -> jax.Array:
            with sums_by(backend):
                return added(x, 2)

        over = mesh.over(summed, jax.sharding.PartitionSpec(), jax.sharding.PartitionSpec())
        return jax.make_jaxpr(over)(jnp.zeros((1, 1024)))

    assert "all_gather" in str(traced("xla"))
    with pytest.raises(ValueError, match="semaphores"):  # this device has no such kernel
        traced("mosaic")
    assert "all_gather" in str(traced(("mosaic", "xla")))
