"""Steps whose rows have adapters of experts, of routers and of the heads of latent attention.

`test_adapters.py` has the merged models of these families.
"""

from pathlib import Path

import numpy as np
import pytest

from jax_engine.lora.adapter import AdaptedModule, Adapter
from jax_engine.lora.modules import Modules
from jax_engine.lora.slot_weights import AdapterSlots
from jax_engine.models.model_loader import open_model
from jax_engine.operations import device
from reference.lora import merged_weights
from tests.golden.families.checkpoints import cases
from tests.golden.families.parity import write
from tests.models.checkpoints import write_checkpoint
from tests.models.test_quantised_models import write_mxfp4
from tests.support.adapted import (
    MAX_RANK,
    PROMPT,
    SLOTS,
    Driver,
    adapter_of,
    beside,
    logits_of,
    modules_at,
    worker_of,
)
from tests.worker import test_adapters
from tests.worker.test_adapters import (
    alone,
    check_company,
    check_turns,
    merged_checkpoint,
    without_kernels,
)

CASES = cases()
# Experts alone; a shared network and its gate beside them; latent attention, one that is wide.
MIXTURES = ("mixtral", "qwen2_moe", "deepseek_v2")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for case in (*MIXTURES, "gpt_oss"):
        (folder / case).mkdir()
        write(CASES[case], folder / case)
    return folder


def parts(of: Modules, names: list[str]) -> list[list[str]]:
    """All modules; every second expert's and the heads'; routers and gates alone."""
    experts = [name for name in names if of.by_name[name].kind == "experts"]
    heads = [name for name in names if name.endswith("kv_b_proj")]
    gates = [name for name in names if name.endswith("gate")]
    return [names, experts[::2] + heads, gates]


def several(path: Path) -> list[Adapter]:
    of, names = modules_at(path)
    return [
        adapter_of(one, of, seed, biased=seed == 1) for seed, one in enumerate(parts(of, names))
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "dtype"),
    [*((case, "float32") for case in MIXTURES), ("qwen2_moe", "bfloat16"),
     ("deepseek_v2", "float16")],
)  # fmt: skip
def test_a_row_s_bits_depend_on_its_own_adapter_alone(case: str, dtype: str, models: Path) -> None:
    """Other users of an expert, the order of rows, and the numbers of the slots do not count."""
    check_company(models / case, several(models / case), dtype)


@pytest.mark.parametrize("case", MIXTURES)
@pytest.mark.slow
def test_chunks_of_a_prompt_and_company_do_not_matter(case: str, models: Path) -> None:
    adapters, worker = several(models / case), worker_of(models / case)
    expected = alone(worker, 1, 2, adapters[0])
    driver = Driver(worker)
    driver.open(2, PROMPT, slot=2, place=5)
    driver.open(3, PROMPT, place=7)
    driver.step((3, PROMPT[:9]), (2, PROMPT[:1]))
    driver.step((2, PROMPT[1:9]), (3, PROMPT[9:]))
    assert driver.step((2, PROMPT[9:]))[0].tobytes() == expected[1].tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("case", MIXTURES)
def test_an_adapter_whose_b_is_zero_is_the_base(case: str, models: Path) -> None:
    of, names = modules_at(models / case)
    adapter = adapter_of(names, of, 0, b=0.0, biased=True)
    found = alone(worker_of(models / case), 1, 1, adapter)
    np.testing.assert_array_equal(found, logits_of(models / case))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "add"), [("qwen2_moe", "numba"), ("deepseek_v2", "numba"), ("mixtral", "xla")]
)
def test_a_slot_that_is_taken_keeps_nothing(
    case: str, add: str, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its neighbour loses nothing. An adapter that is loaded again has the bits that it had."""
    if add == "xla":
        without_kernels(monkeypatch)
    path = models / case
    of, names = modules_at(path)
    large = adapter_of(names, of, 0, rank=MAX_RANK, biased=True)
    _, few, gates = parts(of, names)
    worker = worker_of(path, loras=2)
    first = alone(worker, 1, 1, large)
    second = alone(worker, 2, 2, large)
    assert first.tobytes() == second.tobytes()
    for some in (few[:1], few[-1:] + gates[:1]):
        small = adapter_of(some, of, 1, rank=3)
        fresh = alone(worker_of(path, loras=1), 1, 1, small)
        assert alone(worker, 3, 1, small).tobytes() == fresh.tobytes()
        assert alone(worker, 4, 2).tobytes() == first.tobytes()
        assert alone(worker, 5, 1, large).tobytes() == first.tobytes()
    assert alone(worker, 6, 0).tobytes() == logits_of(path).tobytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "waits"), [("gpt_oss", False), ("deepseek_v2", False), ("deepseek_v2", True)]
)
def test_xla_s_twin(
    case: str, waits: bool, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It equals the merged model. Where branches wait, as on a GPU, no row is left out."""
    without_kernels(monkeypatch)
    if waits:
        cpu, *others = device.DEVICES
        gpu = cpu._replace(branches_wait=True, bias_rows=8)
        monkeypatch.setattr(device, "DEVICES", (gpu, *others))
    path = models / case
    of, names = modules_at(path)
    adapter = adapter_of(names, of, 0)
    expected = logits_of(merged_checkpoint(CASES[case], adapter, tmp_path / "merged"))
    base, size = logits_of(path), np.abs(expected).max()
    worker = worker_of(path)
    own = alone(worker, 1, 1, adapter)
    check_turns(worker, own, base, 5)
    np.testing.assert_allclose(own, expected, rtol=0, atol=1e-4 * size)


@pytest.mark.slow
def test_one_expert_of_one_layer(models: Path) -> None:
    """Rows that it does not get keep the base's bits; others have its own change."""
    path = models / "mixtral"
    of, _ = modules_at(path)
    base, found = logits_of(path), set()
    for expert in range(5):
        name = f"model.layers.2.block_sparse_moe.experts.{expert}.w2"
        rows = alone(worker_of(path), 1, 1, adapter_of([name], of, 0, rank=4))
        found.add(
            tuple(row.tobytes() == old.tobytes() for row, old in zip(rows, base, strict=True))
        )
    assert len(found) > 1 and any(any(one) and not all(one) for one in found)


@pytest.mark.slow
def test_a_bias_of_keys_changes_nothing_and_one_of_values_does(models: Path) -> None:
    """It adds the same to all scores of a query. To the last bits: the scores are rounded."""
    path = models / "deepseek_v2"
    of, names = modules_at(path)
    heads = [name for name in names if name.endswith("kv_b_proj")]
    spec = open_model(str(path)).abstract.config.spec.attentions[0]
    assert spec.latent is not None
    plain, values = spec.latent.nope_dim, spec.latent.value_dim
    rows = np.arange(of.by_name[heads[0]].out_size) % (plain + values)
    base = adapter_of(heads, of, 0, rank=4)

    def with_bias(chosen: np.ndarray) -> Adapter:
        return Adapter(tuple(
            AdaptedModule(one.name, one.a, one.b, one.scaling, chosen.astype(np.float32))
            for one in base.modules
        ))  # fmt: skip

    worker = worker_of(path)
    expected = alone(worker, 1, 1, base)
    keys = alone(worker, 2, 2, with_bias(rows < plain))
    assert keys.tobytes() == expected.tobytes()
    other = alone(worker, 3, 3, with_bias(rows >= plain))
    assert np.abs(other - expected).max() > 0.05 * np.abs(expected).max()


@pytest.mark.slow
def test_they_count_as_weights(models: Path) -> None:
    test_adapters.test_an_engine_has_as_many_slots_as_its_settings_say(models / "mixtral")
    test_adapters.test_slots_beyond_this_machine_s_memory_are_refused(models / "deepseek_v2")


@pytest.mark.slow
def test_a_quantised_base(models: Path) -> None:
    """Company and adapters do not see each other; x is multiplied before it is rounded."""
    path = models / "qwen2_moe"
    adapter, worker = several(path)[0], worker_of(path, quantization="w8a8")
    own, base = alone(worker, 1, 1, adapter), logits_of(path, quantization="w8a8")
    check_turns(worker, own, base, 4)
    size = np.abs(base).max()
    assert np.abs(own - base).max() > 0.1 * size
    exact = alone(worker_of(path), 1, 1, adapter)
    assert np.abs(exact - own).max() < 0.1 * size


@pytest.mark.slow
def test_experts_in_codes(tmp_path: Path) -> None:
    """MXFP4, of which every number is known: beside the merged model of these numbers."""
    path = tmp_path / "codes"
    path.mkdir()
    config, numbers = write_mxfp4(path)
    of, names = modules_at(path)
    experts = [name for name in names if of.by_name[name].kind == "experts"]
    adapter = adapter_of(experts, of, 0, size=0.2)
    merged = merged_weights(numbers, adapter.modules, turned=experts)
    single = {name: one.astype(np.float32, order="C") for name, one in merged.items()}
    expected = logits_of(write_checkpoint(tmp_path / "merged", config, single))
    own, base = beside(worker_of(path), adapter)
    assert base.tobytes() == logits_of(path).tobytes()
    size = np.abs(expected).max()
    np.testing.assert_allclose(own, expected, rtol=0, atol=1e-3 * size)
    assert np.abs(own - base).max() > 0.1 * size


def test_what_slots_of_experts_and_heads_take(models: Path) -> None:
    """Each slot has as many matrices as there are experts, or heads."""
    model = open_model(str(models / "deepseek_v2"), dtype="float32").abstract
    slots, spec = AdapterSlots(model, SLOTS, 17, "float32"), model.config.spec
    router, heads = spec.experts[0].router, spec.attentions[0].num_heads
    choices = {leaf.kind: leaf.layout.choices for leaf in slots.leaves}
    assert choices["experts"] == router.num_experts
    assert choices["keys"] == choices["values"] == heads
    for leaf, specs in zip(slots.leaves, slots._specs, strict=True):
        count = SLOTS * max(1, leaf.layout.choices)
        assert {one.shape[:2] for one in specs.values()} == {(leaf.layout.layers, count)}
    assert slots.num_bytes == sum(one.size * one.dtype.itemsize for one in slots.arrays)
