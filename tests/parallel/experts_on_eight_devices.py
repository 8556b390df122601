"""Experts that devices have whole (`enable_expert_parallel`). Needs eight of them.

See `test_several_devices.py`.
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jax_engine import LLM, ConfigError, SamplingParams
from jax_engine.models.model_loader import load_model
from pallas_kernels.backends import runs_cpu_kernels
from tests.golden.families.checkpoints import cases
from tests.golden.families.parity import write
from tests.models import test_quantised_models as quantised
from tests.parallel.codes_on_eight_devices import logits
from tests.parallel.on_eight_devices import configured
from tests.support.adapted import adapter_of, beside, logits_of, modules_at, worker_of
from tests.support.exchanges import check_exchanges

CASES = cases()
DEALT: dict[str, Any] = {"enable_expert_parallel": True}
# A shared network beside experts, or none; one tensor for all experts, with biases; groups of
# experts from which a token may choose; latents; weights of inputs.
FAMILIES = [
    ("qwen2_moe", 2), ("qwen3_moe", 2), ("gpt_oss", 2), ("glm4_moe_groups", 4), ("deepseek_v3", 4),
    ("llama4", 2),
]  # fmt: skip


def with_six_experts(case: dict[str, Any]) -> dict[str, Any]:
    """gpt-oss with one expert more than the five of its golden checkpoint."""
    tensors = {
        name: [6 if size == 5 and "mlp" in name else size for size in shape]
        for name, shape in case["tensors"].items()
    }
    return case | {"config": case["config"] | {"num_local_experts": 6}, "tensors": tensors}


def written(case: str, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    found = with_six_experts(CASES[case]) if case == "gpt_oss" else CASES[case]
    if case == "llama4":  # chunks of one block
        found = found | {"config": found["config"] | {"attention_chunk_size": 16}}
    write(found, folder)
    return folder


@pytest.mark.parametrize(("case", "size"), FAMILIES)
def test_devices_have_the_logits_of_one(case: str, size: int, tmp_path: Path) -> None:
    path = written(case, tmp_path)
    shared = logits(path, size, **DEALT)
    np.testing.assert_allclose(shared, logits(path, 1), atol=2e-5)
    np.testing.assert_allclose(shared, logits(path, size), atol=2e-5)


@pytest.mark.skipif(not runs_cpu_kernels(), reason="XLA's products are not added as a tree")
@pytest.mark.parametrize(
    ("family", "given"),
    [("mixtral", {}), ("gpt_oss", {}), ("mixtral", {"quantization": "w8a8"})],
    ids=["mixtral", "gpt_oss", "w8a8"],
)
def test_i52_bits_are_the_same_on_any_number_of_devices(
    family: str, given: dict[str, Any], tmp_path: Path
) -> None:
    """Eight experts are added up as a tree; three of them are a token's."""
    changes: dict[str, Any] = {
        "mixtral": {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral"},
        "gpt_oss": {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss"},
    }[family]
    changes |= {"num_local_experts": 8, "num_experts_per_tok": 3, "num_key_value_heads": 8}
    path, found = configured(tmp_path, changes), []
    for size in (1, 2, 4, 8):
        llm = LLM(
            path, load_format="dummy", skip_tokenizer_init=True, num_gpu_blocks_override=40,
            max_model_len=48, seed=3, dtype="float32", tensor_parallel_size=size, max_num_seqs=4,
            batch_invariant=True, block_size=size + 3, **DEALT, **given,
        )  # fmt: skip
        prompts = [{"prompt_token_ids": [5 + i, *range(3, 3 + 7 * i)]} for i in range(1, 5)]
        asked = SamplingParams(temperature=1.1, max_tokens=9, logprobs=4, seed=1, ignore_eos=True)
        outputs = llm.generate(prompts, asked, use_tqdm=False)
        found.append([(one.outputs[0].token_ids, one.outputs[0].logprobs) for one in outputs])
    assert all(one == found[0] for one in found)


def test_each_device_has_whole_experts(tmp_path: Path) -> None:
    """Each device has as many of each layer. Together they are the checkpoint's."""
    path, size = written("deepseek_v3", tmp_path), 4
    whole, shared = load_model(str(path)), load_model(str(path), tensor_parallel_size=size, **DEALT)
    assert shared.num_parameters == whole.num_parameters
    assert shared.shares is not None
    matrices = {
        name: (leaf.matrix.shape, shared.shares.leaves[name].matrix.shape)
        for name, leaf in shared.shares.whole.items()
        if name.endswith(("experts.gate_up.weight", "experts.down.weight"))
    }
    assert len(matrices) == 2
    for (layers, experts, *sizes), own in matrices.values():
        assert own == (layers, experts // size, *sizes)
    for array in jax.tree.leaves(shared.params):
        assert len({shard.device for shard in array.addressable_shards}) == size


@pytest.mark.parametrize(("case", "talks"), [("gpt_oss", 2), ("qwen2_moe", 3)])
def test_devices_talk_as_often_as_with_parts_of_experts(
    case: str, talks: int, tmp_path: Path
) -> None:
    path = written(case, tmp_path)
    for given in (DEALT, {}):
        worker = worker_of(path, loras=0, tensor_parallel_size=2, **given)
        check_exchanges(worker, in_layers=talks)


def test_experts_in_mxfp4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantised, "cases", lambda: {"gpt_oss": with_six_experts(CASES["gpt_oss"])})
    quantised.write_mxfp4(tmp_path)
    one = logits(tmp_path, 1)
    np.testing.assert_allclose(logits(tmp_path, 2, **DEALT), one, atol=2e-5)


@pytest.mark.parametrize(("case", "size"), [("qwen2_moe", 2), ("gpt_oss", 2), ("deepseek_v3", 4)])
def test_adapters_of_experts(case: str, size: int, tmp_path: Path) -> None:
    """A device has the slots of its experts; a row's other experts are none of its neighbours."""
    path = written(case, tmp_path)
    of, names = modules_at(path)
    adapter = adapter_of(names, of, 0, biased=True)
    one, base = beside(worker_of(path), adapter)
    given: dict[str, Any] = {"tensor_parallel_size": size, **DEALT}
    own, other = beside(worker_of(path, **given), adapter)
    largest = np.abs(one).max()
    np.testing.assert_allclose(own, one, rtol=0, atol=1e-4 * largest)
    assert np.abs(one - base).max() > 0.05 * largest
    assert logits_of(path, **given).tobytes() == other.tobytes()


@pytest.mark.parametrize("mode", ["swap", "recompute"])
def test_preempted_requests_go_on(mode: str, tmp_path: Path) -> None:
    path, found = written("qwen2_moe", tmp_path), []
    asked = SamplingParams(n=2, temperature=1.0, seed=5, max_tokens=12, ignore_eos=True)
    prompts = [{"prompt_token_ids": [3 + i] * 9} for i in range(4)]
    for size in (1, 2):
        llm = LLM(
            str(path), skip_tokenizer_init=True, max_model_len=40, max_num_seqs=8, block_size=4,
            num_gpu_blocks_override=13, dtype="float32", preemption_mode=mode, swap_space=0.01,
            tensor_parallel_size=size, **DEALT,
        )  # fmt: skip
        for _ in range(2):  # the second time prompts are cached
            outputs = llm.generate(prompts, asked, use_tqdm=False)
            found.append([[one.token_ids for one in output.outputs] for output in outputs])
        stats = llm.llm_engine.stats()
        assert (stats.num_swapped_out if mode == "swap" else stats.num_recomputed) > 0
    assert all(one == found[0] for one in found)


def test_other_numbers_are_refused_with_those_that_fit(tmp_path: Path) -> None:
    path = written("qwen2_moe", tmp_path)
    with pytest.raises(ConfigError, match=r"network of 40 and 6 experts: 1 or 2, got 4"):
        logits(path, 4, **DEALT)
    write(CASES["llama"], tmp_path)
    with pytest.raises(ConfigError, match=r"enable_expert_parallel must be False .* got True"):
        logits(tmp_path, 1, **DEALT)
