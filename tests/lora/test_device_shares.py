"""What devices have of an adapter, without devices: together they add what one would add."""

import dataclasses

import numpy as np
import pytest

from jax_engine.lora.adapted_leaves import (
    AdaptedLeaf,
    SlotsOfDevice,
    adapted_leaves,
    matrices,
    slots_of_device,
)
from jax_engine.lora.modules import modules_of
from jax_engine.models.leaves import abstract_leaves
from jax_engine.models.model_config import ModelConfig
from jax_engine.models.model_loader import abstract_decoder
from jax_engine.models.registry import config_from_hf
from jax_engine.models.weight_loader import Shares, shares_of
from jax_engine.parallel.cuts import COLUMNS, ROWS
from jax_engine.parallel.mesh import OneOfMany
from jax_engine.parallel.partition import divided, with_dealt_experts, with_whole_rows
from jax_engine.weights.low_rank import A, B, SlotLayout, parts_of_columns
from tests.golden.families.checkpoints import cases
from tests.support.adapted import MAX_RANK, adapter_of

CASES = cases()
Arrays = dict[str, np.ndarray]
# KV heads on several devices; a tied head whose rows no size divides; one tensor of q, k and v,
# with rows in another order; latents; experts of which a device has a part, or that it has whole.
FAMILIES = [
    ("llama", 2, False), ("llama", 4, False), ("gemma2", 4, False), ("gpt2", 2, False),
    ("phi3", 2, False), ("gpt_neox", 2, False), ("minicpm3", 4, False), ("deepseek_v3", 4, False),
    ("qwen2_moe", 2, False), ("qwen2_moe", 2, True), ("glm4_moe", 4, True),
]  # fmt: skip


def shared(case: str, size: int, *, dealt: bool) -> tuple[ModelConfig, Shares]:
    """A model's configuration, and how devices share it; the first network has whole rows."""
    config = config_from_hf(CASES[case]["config"])
    spec = with_dealt_experts(config.spec) if dealt else config.spec
    spec = with_whole_rows(spec, ["groups.0.places.0.mlp.down.weight"])
    whole, own = (
        abstract_leaves(abstract_decoder(one, "float32")[1], one)
        for one in (spec, divided(spec, size))
    )
    return dataclasses.replace(config, spec=spec), shares_of(OneOfMany(size, 0), spec, whole, own)


def product(layout: SlotLayout, new: Arrays, x: np.ndarray) -> np.ndarray:
    """B (A x) and biases [n, out] of n inputs [n, in], each with its own matrices."""
    shrunk = np.einsum("nri,ni->nr", new[A], x).reshape(len(x), layout.parts, -1)
    own = shrunk[:, parts_of_columns(layout)]
    found: np.ndarray = np.einsum("nor,nor->no", new[B][..., :-1], own) + new[B][..., -1]
    return found


def of_devices(
    leaf: AdaptedLeaf, slots: SlotsOfDevice, new: Arrays, x: np.ndarray, size: int
) -> np.ndarray:
    """The same of all devices: their parts of outputs, or of a sum, or of the matrices."""
    cut, total = slots.cut, np.zeros((len(x), leaf.layout.out_size))
    if cut is None:
        return product(slots.layout, slots.share(new, size - 1), x)
    for rank in range(size):
        own, places = slots.share(new, rank), cut.places[rank]
        if cut.axis == COLUMNS:
            total += product(slots.layout, own, x[:, places])
        elif cut.axis == ROWS:
            total[:, places] = product(slots.layout, own, x)
        else:
            total[places] = product(slots.layout, own, x[places])
    return total


@pytest.mark.parametrize(("case", "size", "dealt"), FAMILIES)
def test_what_devices_add_is_what_one_adds(case: str, size: int, dealt: bool) -> None:
    config, shares = shared(case, size, dealt=dealt)
    leaves = adapted_leaves(config, shares.whole, 1, MAX_RANK)
    names = [name for leaf in leaves for names in leaf.modules for name in names]
    adapter = adapter_of(dict.fromkeys(names), modules_of(config), 0, biased=True)
    modules, rng, axes = {one.name: one for one in adapter.modules}, np.random.default_rng(1), set()
    for leaf in leaves:
        slots = slots_of_device(leaf, shares)
        axes.add(slots.cut and slots.cut.axis)
        for _, new in matrices(leaf, modules):
            x = rng.normal(size=(len(new[A]), leaf.layout.in_size))
            expected = product(leaf.layout, new, x)
            np.testing.assert_allclose(of_devices(leaf, slots, new, x, size), expected, atol=1e-4)
    assert {ROWS, COLUMNS, None} <= axes


@pytest.mark.parametrize(("case", "size", "dealt"), FAMILIES)
def test_slots_have_the_sizes_of_a_device_s_weights(case: str, size: int, dealt: bool) -> None:
    """A panel of a gated product has columns of the gate, and the same ones of up."""
    config, shares = shared(case, size, dealt=dealt)
    for leaf in adapted_leaves(config, shares.whole, 1, MAX_RANK):
        layout = slots_of_device(leaf, shares).layout
        if leaf.kind in ("embedding", "tied head"):
            assert layout.in_size == leaf.layout.in_size
            continue
        matrix = shares.leaves[leaf.weight].matrix
        assert (layout.out_size, layout.in_size) == matrix.shape[-2:]
        if layout.choices:
            assert layout.choices == matrix.shape[-3]
        columns = [np.arange(first, first + count) for first, count, _ in layout.halves]
        assert sorted(np.concatenate(columns)) == list(range(layout.out_size))
        if matrix.gated:
            gates, up = columns[::2], columns[1::2]
            assert all(
                np.array_equal(one + layout.out_size // 2, other)
                for one, other in zip(gates, up, strict=True)
            )


def test_one_device_has_all() -> None:
    config, shares = shared("llama", 2, dealt=False)
    for leaf in adapted_leaves(config, shares.whole, 1, MAX_RANK):
        slots = slots_of_device(leaf, None)
        assert slots.layout is leaf.layout and slots.cut is None
