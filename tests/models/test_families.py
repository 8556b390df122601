"""Each family against PyTorch transformers: logits and greedy tokens of tiny checkpoints (I39)."""

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import save_file

from jax_engine import LLM, SamplingParams
from jax_engine.models.registry import FAMILIES, config_from_hf
from jax_engine.worker import step_shape
from tests.golden.families.checkpoints import NUM_GREEDY, PROMPT, cases, goldens
from tests.golden.families.first_cases import FIRST
from tests.golden.families.isomorphs import ISOMORPHS, isomorph
from tests.golden.families.parity import answer, difference, write
from tests.golden.families.recent_cases import RECENT

CASES = cases()
GOLDENS = goldens()
TOLERANCE = 1e-4  # relative to the largest logit
# The last one of each family's first cases: those turn most switches.
LATENTS = ("deepseek_v2", "deepseek_v3", "glm4_moe_lite", "minicpm3")
IN_THE_ENGINE = {
    FAMILIES[CASES[name]["config"]["architectures"][0]]: name
    for name in (*FIRST, *LATENTS, *RECENT)
}
# What has an own layout in each family's cases; the rest follows by a rule of the family.
GIVEN = {"qwen2_one", "gemma2_one", "gemma3_one", "gpt_oss_one", "olmo3_all", "cohere2_all"}
GIVEN |= {"dots1_one", "vaultgemma_one", "exaone_moe_all", "llama4_one"}


def check_against_golden(name: str, path: Path) -> None:
    """The model there gives a case's logits and tokens."""
    found, tokens = answer(path)
    assert tokens == GOLDENS[f"{name}.tokens"].tolist()
    assert difference(found, GOLDENS[f"{name}.logits"]) < TOLERANCE


@pytest.mark.parametrize("name", CASES)
def test_i39_logits_and_greedy_tokens_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    """A prompt in two chunks, then token by token over the paged cache."""
    write(CASES[name], tmp_path)
    check_against_golden(name, tmp_path)


@pytest.mark.parametrize("name", ISOMORPHS)
def test_i39_families_without_a_class_are_those_that_compute_the_same(
    name: str, tmp_path: Path
) -> None:
    case = write_isomorph(name, tmp_path)
    check_against_golden(case, tmp_path)


def write_isomorph(name: str, folder: Path) -> str:
    """Its checkpoint. Returns the case whose golden it has."""
    case, config, tensors = isomorph(name)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return case


def test_every_family_has_three_shapes() -> None:
    """Or an isomorph; of shapes, kinds of heads and of heads for logits, and biases."""
    shapes: dict[Any, set[Any]] = {}
    for case in CASES.values():
        spec = config_from_hf(case["config"]).spec
        one = spec.attentions[0]
        kind = spec.width, spec.num_layers, spec.num_kv_heads, spec.vocab_size, one.qkv_bias
        shapes.setdefault(FAMILIES[case["config"]["architectures"][0]], set()).add(kind)
    without = {FAMILIES[isomorph(name)[1]["architectures"][0]] for name in ISOMORPHS}
    assert set(shapes) | without == {*FAMILIES.values()}
    few = {one for one, kinds in shapes.items() if len(kinds) < 3}
    assert not few, few


@pytest.mark.parametrize(
    "name", [n for n, case in CASES.items() if "layer_types" in case["config"] and n not in GIVEN]
)
def test_layers_of_two_kinds_follow_transformers_rule(name: str) -> None:
    """Transformers writes `layer_types` out; older files leave it to the family's rule."""
    config = CASES[name]["config"]
    without = {field: value for field, value in config.items() if field != "layer_types"}
    assert config_from_hf(without) == config_from_hf(config)


@pytest.mark.parametrize("name", [*IN_THE_ENGINE.values(), *ISOMORPHS])
def test_i30_the_engine_gives_the_same_tokens_under_chunks_preemption_and_prefixes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two requests of 44 tokens in 64 places: prompts in chunks of 7, and one must wait."""
    monkeypatch.setattr(step_shape, "DECODE_SIZES", (2,))  # one step less to compile
    if name in ISOMORPHS:
        name = write_isomorph(name, tmp_path)
    else:
        write(CASES[name], tmp_path)
    llm = LLM(
        str(tmp_path),
        skip_tokenizer_init=True,
        dtype="float32",
        block_size=4,
        num_gpu_blocks_override=16,
        max_model_len=48,
        max_num_seqs=2,
        max_num_batched_tokens=7,
        enable_chunked_prefill=True,
        enable_prefix_caching=True,
    )
    params = SamplingParams(temperature=0.0, max_tokens=NUM_GREEDY, ignore_eos=True)
    outputs = llm.generate([PROMPT, PROMPT, PROMPT], params, use_tqdm=False)
    expected = GOLDENS[f"{name}.tokens"].tolist()
    assert [one.outputs[0].token_ids for one in outputs] == [expected] * 3
    assert sum(llm.llm_engine.scheduler.num_preemptions.values()) > 0
    assert outputs[2].num_cached_tokens
