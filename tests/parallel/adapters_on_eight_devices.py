"""Adapters beside a model that devices share. Needs eight of them: see `test_several_devices.py`.

Slots are cut like the weights beside which they stand, so that a device has a part of each adapter.
Rows without an adapter keep the bits that they have on devices without slots.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jax_engine import LLM
from jax_engine.lora.slot_weights import AdapterSlots
from jax_engine.models.model_loader import open_model
from tests.engine.test_real_adapters import DRAWN, SETTINGS, SLOTS, asked
from tests.golden.families.checkpoints import cases
from tests.golden.families.parity import write
from tests.support.adapted import adapter_of, beside, logits_of, modules_at, worker_of
from tests.support.exchanges import check_exchanges
from tests.support.tiny_llama import tiny_llama
from tests.worker.test_adapters import merged_checkpoint

CASES = cases()
# A tied head; turned matrices; q, k and v in one tensor, with rows in another order, and attention
# beside its network; latents and experts; experts in a tensor for all, beside no shared network; a
# norm over the heads of all devices. `tests/lora/test_device_shares.py` has more of them.
FAMILIES = [
    ("gemma2", 2), ("gpt2", 2), ("gpt_neox", 2), ("deepseek_v3", 4), ("gpt_oss", 2), ("olmo2", 4),
]  # fmt: skip


@pytest.mark.parametrize(("case", "size"), FAMILIES)
def test_an_adapter_is_the_merged_model_on_any_number_of_devices(
    case: str, size: int, tmp_path: Path
) -> None:
    write(CASES[case], tmp_path)
    of, names = modules_at(tmp_path)
    adapter = adapter_of(names, of, 0)
    expected = logits_of(merged_checkpoint(CASES[case], adapter, tmp_path / "merged"))
    shared: dict[str, Any] = {"tensor_parallel_size": size}
    base = logits_of(tmp_path, **shared)
    own, other = beside(worker_of(tmp_path, **shared), adapter)
    assert other.tobytes() == base.tobytes()
    largest = np.abs(expected).max()
    np.testing.assert_allclose(own, expected, rtol=0, atol=1e-4 * largest)
    assert np.abs(own - base).max() > 0.05 * largest


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 heads, 4 KV heads; a vocabulary that no number of devices divides."""
    heads = {"num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 4}
    folder = tmp_path_factory.mktemp("models") / "tiny"
    return tiny_llama(folder, intermediate_size=32, **heads)[0]


@pytest.mark.parametrize(("size", "dtype"), [(2, "float32"), (4, "bfloat16"), (8, "float32")])
def test_biases_are_added_once(llama: Path, size: int, dtype: str) -> None:
    """Products that end in a sum over the devices are included. KV heads are repeated, or not."""
    of, names = modules_at(llama)
    adapter = adapter_of(names, of, 1, biased=True)
    one, _ = beside(worker_of(llama, dtype=dtype), adapter)
    worker = worker_of(llama, dtype=dtype, tensor_parallel_size=size)
    own, _ = beside(worker, adapter)
    largest = np.abs(one).max()
    tolerance = 1e-4 if dtype == "float32" else 0.05
    np.testing.assert_allclose(own, one, rtol=0, atol=tolerance * largest)


def test_a_slot_that_is_taken_keeps_nothing_on_any_device(llama: Path) -> None:
    of, names = modules_at(llama)
    large = adapter_of(names, of, 0, rank=20, biased=True)
    for few in (["model.layers.0.self_attn.o_proj"], ["model.layers.1.mlp.up_proj"]):
        small = adapter_of(few, of, 1, rank=3)
        fresh, _ = beside(worker_of(llama, tensor_parallel_size=4), small)
        worker = worker_of(llama, tensor_parallel_size=4)
        beside(worker, large)
        assert beside(worker, small)[0].tobytes() == fresh.tobytes()
        worker.recover()
        assert worker.slots is not None
        assert not any(np.asarray(array).any() for array in worker.slots.arrays)
        assert beside(worker, small)[0].tobytes() == fresh.tobytes()


def test_each_device_has_its_part_of_all_slots(llama: Path) -> None:
    """B of the rows that it has, A of the columns; an embedding's slots are whole on each."""
    one = AdapterSlots(open_model(str(llama)).abstract, 3, 20, "float32")
    slots = worker_of(llama, tensor_parallel_size=4).slots
    assert slots is not None
    shapes = {leaf.weight: own.layout for leaf, own in zip(slots.leaves, slots._own, strict=True)}
    of_layers = {name.partition("places.0.")[2]: one for name, one in shapes.items()}
    sizes = {name: (one.in_size, one.out_size) for name, one in of_layers.items() if name}
    width, head = 20, 4
    assert sizes == {
        "attention.qkv.weight": (width, (4 + 1 + 1) * head),
        "attention.o.weight": (4 * head, width),
        "mlp.gate_up.weight": (width, 2 * 8),
        "mlp.down.weight": (8, width),
    }
    for array in slots.arrays:
        shards = array.addressable_shards
        assert len({shard.device for shard in shards}) == 4
        assert all(4 * shard.data.nbytes == array.nbytes for shard in shards)
    assert one.num_bytes < slots.num_bytes < 4 * one.num_bytes
    assert slots.num_bytes == sum(array.nbytes for array in slots.arrays)


def test_devices_talk_as_often_as_without_adapters(tmp_path: Path) -> None:
    """A matrix of this model is larger than what a step makes of an embedding's slots."""
    sizes = {"num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 8, "hidden_size": 96}
    path, _ = tiny_llama(tmp_path / "tiny", intermediate_size=128, **sizes)
    check_exchanges(worker_of(path, tensor_parallel_size=2), in_layers=2)


@pytest.mark.parametrize(
    "settings",
    [
        {"num_gpu_blocks_override": 14, "preemption_mode": "recompute"},
        {"num_gpu_blocks_override": 14, "preemption_mode": "swap", "swap_space": 0.01},
        {"max_num_batched_tokens": 3, "max_num_seqs": 3, "enable_prefix_caching": True},
    ],
    ids=["recompute", "swap", "small steps"],
)
def test_more_adapters_than_slots_change_nothing(llama: Path, settings: dict[str, Any]) -> None:
    """Adapters come, go and come again; tokens are those of one device."""
    numbers, found = [1, 2, 0, 3, 4, 1, 0, 5, 2], []
    for size in (1, 2, 8):
        llm = LLM(str(llama), **SETTINGS | SLOTS | settings, tensor_parallel_size=size)
        together = asked(llm, llama, DRAWN, numbers)
        assert asked(llm, llama, DRAWN, numbers) == together
        stats = llm.llm_engine.stats()
        mode = settings.get("preemption_mode")
        if mode is not None:
            assert (stats.num_swapped_out if mode == "swap" else stats.num_recomputed) > 0
        found.append([[tokens for tokens, _ in one] for one in together])
    assert found[0] == found[1] == found[2]
