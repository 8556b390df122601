"""Steps whose rows have adapters: merged weights' logits, and bits that depend on nothing else."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jax_engine import EngineConfig
from jax_engine.engine.startup.build import build_engine
from jax_engine.errors import ConfigError, OutOfMemoryError, WeightsError
from jax_engine.lora.adapter import AdaptedModule, Adapter
from jax_engine.lora.slot_weights import AdapterSlots
from jax_engine.models.model_loader import open_model
from jax_engine.operations import device
from pallas_kernels import low_rank
from pallas_kernels.mosaic import low_rank_plan
from reference.lora import merged_weights
from tests.golden.families.checkpoints import cases, tensors_of
from tests.golden.families.parity import write
from tests.models.checkpoints import write_checkpoint
from tests.reference.test_transformer import whole
from tests.support.adapted import (
    CHUNKS,
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
from tests.support.quantised_llama import quantised_llama

CASES = cases()
# Biases; norms of outputs and a tied head; turned matrices; one tensor for q, k and v, or for gate
# and up; rows in another order; latents; a shared network beside experts.
FAMILIES = ("llama", "qwen2", "gemma2", "gpt2", "phi3", "gpt_neox", "falcon_40b", "minicpm3",
            "qwen2_moe", "bloom", "llama_all", "phi3_all", "gptj", "olmo2", "mixtral", "qwen3_moe",
            "gpt_oss", "granitemoe", "deepseek_v2", "deepseek_v3", "glm4_moe")  # fmt: skip
TURNED = ("c_attn", "c_proj", "c_fc")
EMBEDDINGS = ("embed_tokens", "wte", "embed_in", "word_embeddings")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama")
    write(CASES["llama"], folder)
    return folder


def merged_checkpoint(case: dict[str, Any], adapter: Adapter, folder: Path) -> Path:
    """A tied head becomes a matrix of its own: an adapter changes it or the embedding."""
    config, tensors = case["config"], tensors_of(case)
    turned = [one.name for one in adapter.modules if one.name.endswith(EMBEDDINGS)]
    if config["architectures"] == ["GPT2LMHeadModel"]:
        turned += [one.name for one in adapter.modules if one.name.endswith(TURNED)]
    if config["architectures"] == ["GptOssForCausalLM"]:
        turned += [one.name for one in adapter.modules if one.name.endswith("]")]
    if any(one.name == "lm_head" or one.name.endswith(EMBEDDINGS) for one in adapter.modules):
        config, tensors = untied(config, tensors)
    merged = merged_weights(tensors, adapter.modules, turned)
    single = {name: tensor.astype(np.float32, order="C") for name, tensor in merged.items()}
    return write_checkpoint(folder, config, single)


def untied(
    config: dict[str, Any], tensors: dict[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The same model, whose head has a copy of the embedding if they were one."""
    if tensors.keys() & {"lm_head.weight", "embed_out.weight"}:
        return config, tensors
    tables = tuple(f"{one}.weight" for one in EMBEDDINGS)
    (table,) = (name for name in tensors if name.endswith(tables))
    return config | {"tie_word_embeddings": False}, tensors | {"lm_head.weight": tensors[table]}


@pytest.mark.slow
@pytest.mark.parametrize("case", FAMILIES)
def test_an_adapter_is_the_merged_model(case: str, tmp_path: Path) -> None:
    """It is so for chunks of a prompt and decodes. The row without an adapter keeps its bits."""
    write(CASES[case], tmp_path)
    of, names = modules_at(tmp_path)
    adapter = adapter_of(names, of, 0)
    expected = logits_of(merged_checkpoint(CASES[case], adapter, tmp_path / "merged"))
    base = logits_of(tmp_path)
    own, other = beside(worker_of(tmp_path), adapter)
    assert other.tobytes() == base.tobytes()
    size = np.abs(expected).max()
    np.testing.assert_allclose(own, expected, rtol=0, atol=1e-4 * size)
    assert np.abs(own - base).max() > 0.05 * size


@pytest.mark.slow
@pytest.mark.parametrize("method", ["gptq", "w8a8", "gguf"])
def test_a_quantised_base_keeps_its_codes(method: str, tmp_path: Path) -> None:
    """The adapter is added to products with codes; in W8A8 it multiplies x before it is rounded.

    What is expected is computed with the adapter's own products in float64, layer by layer, by the
    oracle whose weights these are.
    """
    path, oracle = quantised_llama(tmp_path / "model", method)
    of, names = modules_at(path)
    adapter = adapter_of([one for one in names if "layers." in one], of, 0, size=0.2)
    expected = oracle_logits(oracle, adapter)
    base = logits_of(path)
    own, other = beside(worker_of(path), adapter, slot=1)
    assert other.tobytes() == base.tobytes()
    size = np.abs(expected).max()
    np.testing.assert_allclose(
        own, expected, rtol=0, atol=(0.05 if method == "w8a8" else 1e-3) * size
    )
    assert np.abs(own - base).max() > 0.1 * size


def oracle_logits(oracle: Any, adapter: Adapter) -> np.ndarray:
    """Logits of the oracle's decoder with the adapter's product added to each of its own."""
    own, plain = {one.name: one for one in adapter.modules}, oracle._linear

    def linear(name: str, x: Any) -> Any:
        out, one = plain(name, x), own.get(name)
        if one is None:
            return out
        return (out + one.scaling * (np.asarray(x, np.float64) @ one.a.T @ one.b.T)).astype(x.dtype)

    oracle._linear = linear
    ends = np.cumsum([len(chunk) for chunk in CHUNKS]) - 1
    hidden = whole(oracle, [token for chunk in CHUNKS for token in chunk])
    return np.asarray(oracle.compute_logits(hidden))[ends]


def alone(worker: Any, seq: int, slot: int, adapter: Adapter | None = None) -> np.ndarray:
    """A sequence's logits in steps of its own."""
    driver = Driver(worker)
    driver.open(seq, PROMPT, slot=slot)
    adapters = [] if adapter is None else [(slot, adapter)]
    found = [
        driver.step((seq, chunk), adapters=adapters if number == 0 else [])
        for number, chunk in enumerate(CHUNKS)
    ]
    return np.concatenate(found)


def several(path: Path, count: int = SLOTS) -> list[Adapter]:
    """Adapters of all modules, of the queries and values, and of the networks alone."""
    of, names = modules_at(path)
    kinds = [names, [one for one in names if one.endswith(("q_proj", "v_proj"))],
             [one for one in names if ".mlp." in one]]  # fmt: skip
    return [adapter_of(kinds[i % 3], of, i, biased=i == 2) for i in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_row_s_bits_depend_on_its_own_adapter_alone(llama: Path, dtype: str) -> None:
    """Other rows, their adapters, their order, and the numbers of the slots do not count."""
    check_company(llama, several(llama), dtype)


def check_company(path: Path, adapters: list[Adapter], dtype: str) -> None:
    """Eight rows with three adapters and without have the bits that each has alone."""
    worker, base = worker_of(path, dtype=dtype), logits_of(path, dtype=dtype)
    expected = [base, *(alone(worker, 1, slot, adapters[slot - 1]) for slot in (1, 2, 3))]
    assert len({one.tobytes() for one in expected}) == 4
    driver = Driver(worker_of(path, dtype=dtype))
    # Slot 1 has the last adapter, 3 the first one.
    taken = {3: adapters[0], 2: adapters[1], 1: adapters[2]}
    slots, own = [0, 3, 1, 2, 3, 0, 2, 3], [0, 1, 3, 2, 1, 0, 2, 1]
    for seq, slot in enumerate(slots):
        driver.open(seq, PROMPT, slot=slot)
    order, found = list(range(len(slots))), dict[int, list[np.ndarray]]()
    for number, chunk in enumerate(CHUNKS):
        order = order[3:] + order[:3]
        given = [*taken.items()] if number == 0 else []
        logits = driver.step(*((seq, chunk) for seq in order), adapters=given)
        for seq, row in zip(order, logits, strict=True):
            found.setdefault(seq, []).append(row)
    for seq, which in enumerate(own):
        assert np.array(found[seq]).tobytes() == expected[which].tobytes(), (seq, which)


@pytest.mark.slow
def test_chunks_of_a_prompt_and_company_do_not_matter(llama: Path) -> None:
    """What is computed again after a preemption, in one piece, has the bits that it had."""
    adapters, worker = several(llama), worker_of(llama)
    expected = alone(worker, 1, 2, adapters[1])
    driver = Driver(worker)
    driver.open(2, PROMPT, slot=2, place=5)
    driver.step((2, PROMPT[:1]))
    driver.step((2, PROMPT[1:9]))
    assert driver.step((2, PROMPT[9:]))[0].tobytes() == expected[1].tobytes()
    driver.step((2, [4]))
    driver.close(2)
    driver.open(3, PROMPT, slot=2, place=7)
    last = driver.step((3, [*PROMPT, 4, 9]))
    assert last[0].tobytes() == expected[3].tobytes()


@pytest.mark.slow
def test_an_adapter_whose_b_is_zero_is_the_base(llama: Path) -> None:
    """x + 0 has the bits of x, but for the sign of a zero, which no logit here has."""
    of, names = modules_at(llama)
    adapter = adapter_of(names, of, 0, b=0.0, biased=True)
    assert all(not one.b.any() for one in adapter.modules)
    found = alone(worker_of(llama), 1, 1, adapter)
    np.testing.assert_array_equal(found, logits_of(llama))


@pytest.mark.slow
def test_evicted_and_loaded_again_is_never_evicted(llama: Path) -> None:
    """Another slot gives the same bits."""
    adapters, worker = several(llama), worker_of(llama, loras=2)
    expected = alone(worker, 1, 1, adapters[0])
    second = alone(worker, 2, 2, adapters[1])
    alone(worker, 3, 1, adapters[2])
    assert alone(worker, 4, 2).tobytes() == second.tobytes()
    assert alone(worker, 5, 1, adapters[0]).tobytes() == expected.tobytes()
    assert alone(worker, 6, 2, adapters[0]).tobytes() == expected.tobytes()
    assert alone(worker, 7, 1).tobytes() == expected.tobytes()
    assert alone(worker, 8, 0).tobytes() == logits_of(llama).tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("add", ["numba", "xla"])
def test_a_slot_that_is_taken_keeps_nothing(
    llama: Path, add: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One with fewer modules, smaller ranks and no biases follows one with all of them."""
    if add == "xla":
        without_kernels(monkeypatch)
    of, names = modules_at(llama)
    large = adapter_of(names, of, 0, rank=MAX_RANK, biased=True)
    for few in (["model.layers.1.self_attn.k_proj"], ["model.layers.0.mlp.up_proj"], names):
        small = adapter_of(few, of, 1, rank=3)
        fresh = alone(worker_of(llama), 1, 1, small)
        worker = worker_of(llama)
        alone(worker, 1, 1, large)
        assert alone(worker, 2, 1, small).tobytes() == fresh.tobytes()


def test_steps_in_flight_keep_their_adapters(llama: Path) -> None:
    """The next step takes their slots before they are read."""
    adapters, worker = several(llama), worker_of(llama)
    expected = [alone(worker, 1, 1, one)[0] for one in adapters]
    driver, tickets = Driver(worker), []
    for number, one in enumerate(adapters * 3):
        driver.open(number, PROMPT, slot=1)
        tickets.append(driver.launch((number, CHUNKS[0]), adapters=[(1, one)]))
    found = [driver.read(ticket)[0] for ticket in tickets]
    for number, row in enumerate(found):
        assert row.tobytes() == expected[number % 3].tobytes()


def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no Numba, as on other machines."""
    monkeypatch.setattr("pallas_kernels.backends._cpu_kernels_failure", lambda: "not wanted")


@pytest.mark.slow
@pytest.mark.parametrize("case", ["llama", "gpt2", "phi3", "gemma2"])
def test_xla_s_twin_is_the_merged_model_too(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_kernels(monkeypatch)
    test_an_adapter_is_the_merged_model(case, tmp_path)


@pytest.mark.slow
def test_bits_of_xla_s_twin(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_kernels(monkeypatch)
    test_a_row_s_bits_depend_on_its_own_adapter_alone(llama, "float32")


@pytest.mark.slow
def test_a_gpu_s_kernels(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interpreted: beside XLA's twin, and bits that depend on the row's own adapter alone."""
    without_kernels(monkeypatch)
    cpu, *others = device.DEVICES
    gpu = cpu._replace(branches_wait=True, bias_rows=8)
    monkeypatch.setattr(device, "DEVICES", (gpu, *others))
    adapters, used = several(llama), list[bool]()
    worker = worker_of(llama, dtype="bfloat16")
    expected = [alone(worker, slot, slot, adapters[slot - 1]) for slot in (1, 2, 3)]
    base = logits_of(llama, dtype="bfloat16")

    def has_kernel(*call: Any) -> bool:
        used.append(low_rank_plan.missing(*call) is None)
        return used[-1]

    monkeypatch.setattr(low_rank, "has_kernel", has_kernel)
    monkeypatch.setattr("jax_engine.weights.low_rank.make_tiles", low_rank_plan.tiles_of)
    worker = worker_of(llama, dtype="bfloat16")
    own = alone(worker, 1, 1, adapters[0])
    # All but the head, whose 61 rows fill no block.
    assert used[:6] == [True] * 5 + [False]
    driver = Driver(worker)
    for seq in range(4):
        driver.open(10 + seq, PROMPT, slot=seq)
    both = []
    for number, chunk in enumerate(CHUNKS):
        given = [(2, adapters[1]), (3, adapters[2])] if number == 0 else []
        both.append(driver.step(*((10 + seq, chunk) for seq in range(4)), adapters=given))
    found = np.array(both).swapaxes(0, 1)
    assert found[0].tobytes() == base.tobytes()
    assert found[1].tobytes() == own.tobytes()
    for row, twin in zip(found[1:], expected, strict=True):
        size = np.abs(twin).max()
        np.testing.assert_allclose(row, twin, rtol=0, atol=0.03 * size)
        assert np.abs(row - base).max() > 0.1 * size


@pytest.mark.slow
def test_company_and_integers(llama: Path) -> None:
    """Rows of x are rounded to int8 beside each other; adapters do not see that."""
    worker = worker_of(llama, quantization="w8a8")
    own = alone(worker, 1, 1, several(llama)[0])
    check_turns(worker, own, logits_of(llama, quantization="w8a8"), 4)


def check_turns(worker: Any, own: np.ndarray, base: np.ndarray, count: int) -> None:
    """Rows with the adapter of slot 1 and without, in turn: each has the bits that it has alone."""
    driver = Driver(worker)
    for seq in range(count):
        driver.open(10 + seq, PROMPT, slot=seq % 2)
    steps = [driver.step(*((10 + seq, chunk) for seq in range(count))) for chunk in CHUNKS]
    for seq, rows in enumerate(np.array(steps).swapaxes(0, 1)):
        assert rows.tobytes() == (own if seq % 2 else base).tobytes()


@pytest.mark.slow
def test_where_branches_wait_a_step_with_adapters_is_a_program_of_its_own(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU is such a device. On a CPU one program serves both."""
    worker = worker_of(llama)
    alone(worker, 1, 0)
    alone(worker, 2, 1, several(llama)[0])
    assert not any(shape.lora for shape in worker.steps.compiled_shapes())
    expected = alone(worker, 3, 1)
    base = alone(worker, 4, 0)
    cpu, *others = device.DEVICES
    waiting = cpu._replace(branches_wait=True)
    monkeypatch.setattr(device, "DEVICES", (waiting, *others))
    worker = worker_of(llama)
    assert alone(worker, 1, 0).tobytes() == base.tobytes()
    before = worker.steps.compiled_shapes()
    assert not any(shape.lora for shape in before)
    assert alone(worker, 2, 1, several(llama)[0]).tobytes() == expected.tobytes()
    added = worker.steps.compiled_shapes()[len(before) :]
    assert added and all(shape.lora for shape in added)
    assert "with adapters" in str(added[0])


def test_what_cannot_be_held_is_refused_before_anything_changes(llama: Path) -> None:
    of, names = modules_at(llama)
    adapter = adapter_of(names, of, 0)
    worker = worker_of(llama)
    expected = alone(worker, 1, 1, adapter)
    other = AdaptedModule("model.layers.9.mlp.up_proj", np.ones((1, 2)), np.ones((2, 1)), 1.0)
    both = Adapter((*adapter_of(names, of, 2).modules, other))
    large = adapter_of(names[:1], of, 3, rank=MAX_RANK + 1)
    for slot, one, said in (
        (1, both, "model.layers.9.mlp.up_proj, which cannot be computed"),
        (1, large, rf"max_lora_rank \({MAX_RANK}\), got {MAX_RANK + 1}"),
        (0, adapter, f"between 1 and {SLOTS}, got 0"),
        (SLOTS + 1, adapter, f"between 1 and {SLOTS}, got {SLOTS + 1}"),
    ):
        driver = Driver(worker)
        driver.open(2, PROMPT, slot=1)
        with pytest.raises(WeightsError, match=said):
            driver.step((2, CHUNKS[0]), adapters=[(slot, one)])
        assert alone(worker, 3, 1).tobytes() == expected.tobytes()
    with pytest.raises(WeightsError, match="max_loras must be at least 1: got 0"):
        alone(worker_of(llama, loras=0), 1, 1, adapter)


def test_a_failure_empties_the_slots(llama: Path) -> None:
    adapters, worker = several(llama), worker_of(llama)
    expected = alone(worker, 1, 1, adapters[0])
    assert worker.slots is not None
    for array in worker.slots.arrays:
        array.delete()
    worker.recover()
    assert not any(np.asarray(array).any() for array in worker.slots.arrays)
    assert alone(worker, 2, 1, adapters[0]).tobytes() == expected.tobytes()


def test_the_worker_says_how_many_it_holds(llama: Path) -> None:
    assert worker_of(llama).capabilities.max_loras == SLOTS
    assert worker_of(llama, loras=0).capabilities.max_loras == 0


@pytest.mark.parametrize(("dtype", "held"), [("float32", 4), ("float16", 4), ("bfloat16", 2)])
def test_what_slots_take(llama: Path, dtype: str, held: int) -> None:
    """Only shapes until they are made. Ranks are held in blocks of 16."""
    model = open_model(str(llama), dtype=dtype).abstract
    slots = AdapterSlots(model, 2, 17, dtype)
    config = model.config
    width, layers = config.hidden_size, config.spec.num_layers
    assert not any(isinstance(array, jnp.ndarray) for array in slots.arrays)
    a_of_qkv = next(one for one in slots.arrays if one.shape[2] == 3 * 2)
    assert a_of_qkv.shape == (layers, 2, 6, width // 2, 32)
    assert a_of_qkv.dtype.itemsize == held
    assert slots.num_bytes == sum(one.size * one.dtype.itemsize for one in slots.arrays)


@pytest.mark.parametrize("case", ["llama", "gemma2", "gpt2"])
@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.slow
def test_an_embedding_and_a_head_alone(
    case: str, kernels: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head may be tied: an adapter then changes one use of the matrix."""
    if not kernels:
        without_kernels(monkeypatch)
    write(CASES[case], tmp_path)
    of, names = modules_at(tmp_path)
    for number, kind in enumerate(("embedding", "head")):
        (name,) = (one for one in names if of.by_name[one].kind == kind)
        adapter = adapter_of([name], of, number, biased=case == "llama")
        expected = logits_of(merged_with_bias(CASES[case], adapter, tmp_path / f"merged{number}"))
        found = alone(worker_of(tmp_path), 1, 2, adapter)
        if kind == "head" and adapter.modules[0].bias is not None:
            expected = expected + adapter.modules[0].scaling * adapter.modules[0].bias
        size = np.abs(expected).max()
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * size)
        assert np.abs(found - logits_of(tmp_path)).max() > 0.05 * size


def merged_with_bias(case: dict[str, Any], adapter: Adapter, folder: Path) -> Path:
    """A table has no bias: it is added to each of its rows. A head's is added by the caller."""
    (one,) = adapter.modules
    bare = Adapter((AdaptedModule(one.name, one.a, one.b, one.scaling),))
    if one.bias is None or one.name == "lm_head":
        return merged_checkpoint(case, bare, folder)
    config, tensors = untied(case["config"], tensors_of(case))
    merged = merged_weights(tensors, bare.modules, [one.name])
    merged[f"{one.name}.weight"] = merged[f"{one.name}.weight"] + one.scaling * one.bias
    single = {name: tensor.astype(np.float32, order="C") for name, tensor in merged.items()}
    return write_checkpoint(folder, config, single)


SETTINGS: dict[str, Any] = {
    "skip_tokenizer_init": True, "max_model_len": 32, "max_num_seqs": 2,
    "max_num_batched_tokens": 32, "num_gpu_blocks_override": 20,
}  # fmt: skip


@pytest.mark.slow
def test_an_engine_has_as_many_slots_as_its_settings_say(llama: Path) -> None:
    """They count as weights."""
    plain = build_engine(EngineConfig(model=str(llama), **SETTINGS))
    options: dict[str, Any] = {"max_loras": 5, "max_lora_rank": 17}
    unused = build_engine(EngineConfig(model=str(llama), **SETTINGS, **options))
    parts = build_engine(EngineConfig(model=str(llama), **SETTINGS, enable_lora=True, **options))
    found = [one.worker.capabilities.max_loras for one in (plain, unused, parts)]
    assert found == [0, 0, 5]
    worker: Any = parts.worker
    assert worker.slots.leaves[0].layout.max_rank == 17
    assert parts.memory.weights - plain.memory.weights == worker.slots.num_bytes > 0
    assert unused.memory == plain.memory


def test_slots_beyond_this_machine_s_memory_are_refused(llama: Path) -> None:
    config = EngineConfig(model=str(llama), **SETTINGS, enable_lora=True, max_loras=10**9)
    with pytest.raises(OutOfMemoryError, match="1000000000 slots for adapters"):
        build_engine(config)


def test_an_invariant_gpu_takes_none(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("build", "engine_memory"):
        needed = f"jax_engine.engine.startup.{module}.needs_invariant_kernels"
        monkeypatch.setattr(needed, lambda config: True)
    config = EngineConfig(model=str(llama), **SETTINGS, enable_lora=True)
    with pytest.raises(ConfigError, match="enable_lora with batch_invariant"):
        build_engine(config)


@pytest.mark.slow
def test_log_probabilities_of_a_prompt_are_the_adapter_s(llama: Path) -> None:
    """They equal the merged model's, where the adapter changes the head too."""
    of, names = modules_at(llama)
    adapter = adapter_of(names, of, 0)
    folder = llama / "merged_for_logprobs"
    merged = prompt_logprobs_of(merged_checkpoint(CASES["llama"], adapter, folder), 0, None)
    found = prompt_logprobs_of(llama, 1, adapter)
    np.testing.assert_allclose(found, merged, rtol=0, atol=1e-3)
    assert np.abs(found - prompt_logprobs_of(llama, 0, None)).max() > 0.1


def prompt_logprobs_of(path: Path, slot: int, adapter: Adapter | None) -> np.ndarray:
    """A prompt's log-probabilities beside another sequence, which has no adapter."""
    driver = Driver(worker_of(path))
    driver.open(1, PROMPT)
    driver.open(2, PROMPT, slot=slot, prompt_logprobs=0)
    adapters = [] if adapter is None else [(slot, adapter)]
    ticket = driver.launch((1, PROMPT[:5]), (2, PROMPT), adapters=adapters)
    found = driver.worker.collect(ticket).prompt
    assert found is not None
    return np.array(found.logprobs[5 : 5 + len(PROMPT) - 1])
