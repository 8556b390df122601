"""Latent attention in the engine: its cache, its compiled step, and what the families refuse."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jax_engine import LLM, SamplingParams
from jax_engine.errors import ConfigError
from jax_engine.model_spec import AttentionSpec, HeadNormSpec, LatentSpec, NormSpec
from jax_engine.models.leaves import abstract_leaves, fill_state
from jax_engine.models.model_loader import abstract_decoder
from jax_engine.models.registry import config_from_hf
from jax_engine.models.weight_loader import random_leaves
from jax_engine.worker.kv_cache import block_bytes, kv_cache_shape
from jax_engine.worker.memory import shares_of_model
from reference.kv_cache import KVCache
from reference.transformer import Transformer
from tests.golden.families.checkpoints import NUM_GREEDY, PROMPT, cases, goldens, tensors_of
from tests.models.paged import PagedRun
from tests.models.test_decoder import result_bytes
from tests.models.test_families import write
from tests.reference.test_latent_attention import MODELS

CASES, GOLDENS = cases(), goldens()
V3: dict[str, Any] = CASES["deepseek_v3"]["config"]


def engine(folder: Path, **settings: Any) -> LLM:
    """Small: 80 places, steps of 7 tokens."""
    return LLM(
        str(folder),
        skip_tokenizer_init=True,
        dtype="float32",
        block_size=4,
        num_gpu_blocks_override=20,
        max_model_len=48,
        max_num_seqs=3,
        max_num_batched_tokens=7,
        enable_chunked_prefill=True,
        **settings,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mode"), [("deepseek_v2_lite", "recompute"), ("deepseek_v3", "swap")]
)
def test_i30_the_same_tokens_under_chunks_preemption_and_prefixes(
    name: str, mode: str, tmp_path: Path
) -> None:
    """Three requests of 44 tokens: prompts in chunks of 7, and someone must wait."""
    write(CASES[name], tmp_path)
    llm = engine(tmp_path, preemption_mode=mode, enable_prefix_caching=True, swap_space=0.01)
    params = SamplingParams(temperature=0.0, max_tokens=NUM_GREEDY, ignore_eos=True)
    outputs = llm.generate([PROMPT, PROMPT[:20], PROMPT], params, use_tqdm=False)
    expected = GOLDENS[f"{name}.tokens"].tolist()
    assert [outputs[place].outputs[0].token_ids for place in (0, 2)] == [expected, expected]
    assert llm.llm_engine.scheduler.num_preemptions[mode] > 0


def test_each_of_two_devices_would_hold_all_latents_and_half_of_the_heads(tmp_path: Path) -> None:
    write(CASES["deepseek_v3"], tmp_path)
    one, two, four = shares_of_model(str(tmp_path))[0]
    assert [each.size for each in (one, two, four)] == [1, 2, 4]
    assert one.kv_cache == two.kv_cache == four.kv_cache > 0
    assert one.weights > two.weights > four.weights


@pytest.mark.slow
def test_i30_forks_copy_blocks_of_latents(tmp_path: Path) -> None:
    """Two samples share their prompt's last block until they write; both are all but greedy."""
    write(CASES["deepseek_v2"], tmp_path)
    llm = engine(tmp_path)
    params = SamplingParams(temperature=0.005, n=2, max_tokens=NUM_GREEDY, ignore_eos=True)
    (output,) = llm.generate([PROMPT], params, use_tqdm=False)
    expected = GOLDENS["deepseek_v2.tokens"].tolist()
    assert [one.token_ids for one in output.outputs] == [expected, expected]


@pytest.mark.slow
def test_i39_latents_of_8_bits(tmp_path: Path) -> None:
    """fp8: every greedy token is the oracle's over the same cache, up to rounding."""
    config, named = MODELS["deepseek_v3"]
    oracle = Transformer(config, named(tensors_of(CASES["deepseek_v3"])))
    write(CASES["deepseek_v3"], tmp_path)
    llm = engine(tmp_path, kv_cache_dtype="fp8")
    params = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
    (output,) = llm.generate([PROMPT[:20]], params, use_tqdm=False)
    text = [*PROMPT[:20], *output.outputs[0].token_ids]
    scales, every = np.ones((config.num_hidden_layers, 1, 1), np.float32), np.arange(len(text))

    def logits(**options: Any) -> np.ndarray:
        sizes = config.cache_sizes()
        cache = KVCache(**sizes, num_blocks=1, block_size=len(text), **options)
        batch = np.array([[0]]), np.array([len(text)]), np.array([0, len(text)])
        return oracle.compute_logits(oracle.forward(np.array(text), every, cache, *batch, every))

    wanted = logits(scales=scales, kind="fp8")
    for position, token in enumerate(text[20:], start=19):
        assert wanted[position, token] > wanted[position].max() - 2e-3 * np.abs(wanted).max()
    assert np.abs(wanted - logits()).max() > 2e-3 * np.abs(wanted).max()


def test_int8_is_refused_for_latents(tmp_path: Path) -> None:
    write(CASES["deepseek_v3"], tmp_path)
    with pytest.raises(ConfigError, match=r"kv_cache_dtype must be 'auto' or 'fp8' .* got 'int8'"):
        engine(tmp_path, kv_cache_dtype="int8")


def test_a_token_takes_a_latent_and_the_rotated_part_in_each_layer() -> None:
    config = config_from_hf(V3)
    assert kv_cache_shape(config, 9, 16) == (3, 1, 9, 1, 16, 20 + 8)
    assert block_bytes(config, 16, "float32") == 3 * 16 * (20 + 8) * 4


@pytest.mark.slow
def test_the_compiled_step_copies_neither_cache_nor_weights() -> None:
    """No instruction makes another array as large as one of the matrices."""
    wide = {"hidden_size": 64, "intermediate_size": 192, "moe_intermediate_size": 128}
    sizes = {"kv_lora_rank": 64, "qk_nope_head_dim": 32, "v_head_dim": 32}
    config = config_from_hf(V3 | wide | sizes)
    graphdef, state = abstract_decoder(config.spec, "float32")
    arrays = random_leaves(abstract_leaves(state, config.spec), seed=0)
    run = PagedRun(config, graphdef, fill_state(state, arrays), num_blocks=2048)
    compiled = run.step.lower(*run.arguments([3])).compile()
    memory = compiled.memory_analysis()
    assert memory.alias_size_in_bytes == run.kv_cache.nbytes
    assert memory.temp_size_in_bytes < run.kv_cache.nbytes // 4
    # The smallest copy: one head's or expert's matrix of a stack
    # [2 layers, heads or experts, panels, words, columns].
    stacks = [one for one in jax.tree.leaves(arrays) if one.ndim == 5]
    smallest = min(one.nbytes // one.shape[0] for one in stacks)
    for line in compiled.as_text().splitlines():
        made = line.partition("(")[0]
        if made.endswith(" copy") or "dynamic-slice" in made:
            assert result_bytes(line) < smallest, line


def test_compiled_size_does_not_grow_with_depth() -> None:
    """Optimised HLO of 8 and of 64 layers, of which the first is dense."""
    sizes = []
    for num_layers in (8, 64):
        config = config_from_hf(V3 | {"num_hidden_layers": num_layers})
        graphdef, state = abstract_decoder(config.spec, "float32")
        run = PagedRun(config, graphdef, state)
        sizes.append(len(run.step.lower(*run.arguments([3])).compile().as_text()))
    assert abs(sizes[1] - sizes[0]) <= 0.02 * sizes[0], sizes


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("deepseek_v2", {"topk_method": "noaux_tc"}, "topk_method 'noaux_tc'.*greedy, group_lim"),
        ("deepseek_v2", {"norm_topk_prob": True}, "norm_topk_prob True.*known: False"),
        ("deepseek_v2", {"scoring_func": "sigmoid"}, "scoring_func 'sigmoid'.*'softmax'"),
        ("deepseek_v2", {"n_group": 3}, r"n_group \(3\) must divide the 8 experts"),
        ("deepseek_v3", {"topk_method": "greedy"}, "topk_method 'greedy'.*'noaux_tc'"),
        ("deepseek_v3", {"rope_interleave": False}, "rope_interleave False.*known: True"),
        ("deepseek_v3", {"kv_lora_rank": 0}, "kv_lora_rank"),
        ("deepseek_v3", {"qk_rope_head_dim": 7}, "must be even for RoPE, got 7 of 27"),
        ("glm4_moe_lite", {"mlp_layer_types": ["dense"]}, r"each of the 3 layers, got 1 of"),
        ("glm4_moe_lite", {"mlp_layer_types": ["moe"] * 3}, r"got 3 of \['moe'\]"),
    ],
)
def test_what_the_families_do_not_compute_is_refused(
    name: str, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        config_from_hf(CASES[name]["config"] | change)


def test_experts_in_every_second_layer() -> None:
    config = config_from_hf(
        V3 | {"num_hidden_layers": 6, "moe_layer_freq": 2, "first_k_dense_replace": 0}
    )
    (group,) = config.spec.groups
    assert group.repeats == 3
    assert [hasattr(layer.mlp, "router") for layer in group.pattern] == [True, False]


@pytest.mark.parametrize(
    ("case", "rope", "longer"),
    [
        # 1 + 0.1 * mscale_all_dim * ln(factor), twice: of queries and of keys
        ("deepseek_v3", {"factor": 4.0, "mscale_all_dim": 1.0}, 1.1386294361**2),
        ("deepseek_v3", {"factor": 40.0, "mscale_all_dim": 0.707}, 1.2608037774**2),
        ("deepseek_v2", {"factor": 4.0, "mscale_all_dim": 0.5, "mscale": 2.0}, 1.0693147181**2),
        ("glm4_moe_lite", {"factor": 1.5, "mscale_all_dim": 3.0}, 1.1216395324**2),
        ("minicpm3", {"factor": 2.0, "mscale_all_dim": 0.25}, 1.0173286795**2),
        ("deepseek_v3", {"factor": 4.0, "mscale_all_dim": 0.0}, 1.0),
        ("deepseek_v3", {"factor": 4.0, "mscale_all_dim": ...}, 1.0),
        ("deepseek_v3", {"factor": 1.0, "mscale_all_dim": 1.0}, 1.0),
        ("deepseek_v3", {"rope_type": "default", "mscale_all_dim": 1.0}, 1.0),
    ],
    ids=str,
)
def test_scores_grow_where_positions_are_stretched(
    case: str, rope: dict[str, Any], longer: float
) -> None:
    """DeepSeek's `yarn_get_mscale`, whatever becomes of the rotation itself."""
    yarn = {"rope_type": "yarn", "rope_theta": 500.0, "original_max_position_embeddings": 16}
    given = {name: value for name, value in (yarn | rope).items() if value is not ...}
    config = {key: value for key, value in CASES[case]["config"].items() if key != "rope_scaling"}
    (scale,) = {
        one.scale for one in config_from_hf(config | {"rope_parameters": given}).spec.attentions
    }
    assert scale == pytest.approx(18**-0.5 * longer, rel=1e-9)


LATENT = LatentSpec(kv_rank=6, nope_dim=4, value_dim=4, norm=NormSpec(1e-6))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_kv_heads": 2}, r"one KV head of both, got .* \(2, 8\)"),
        ({"head_dim": 9}, r"latents of 6 numbers and 2 rotated ones .* \(1, 9\)"),
        ({"clip": 1.0}, "no clip and no head norm"),
        ({"head_norm": HeadNormSpec(1e-6)}, "no clip and no head norm"),
    ],
)
def test_a_specification_that_does_not_fit_is_refused(change: Any, message: str) -> None:
    sizes = {"num_heads": 4, "num_kv_heads": 1, "head_dim": 8, "rotary_dim": 2, "latent": LATENT}
    assert AttentionSpec(**sizes).cached == (1, 1, 8)
    with pytest.raises(ConfigError, match=message):
        AttentionSpec(**sizes | change)
