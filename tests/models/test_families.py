"""Each family against PyTorch transformers: logits and greedy tokens of tiny checkpoints (I39)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from jax_engine import LLM, SamplingParams
from jax_engine.models.load import load_model
from jax_engine.models.registry import FAMILIES, MODULES
from tests.golden.families.checkpoints import NUM_GREEDY, PROMPT, ROWS, cases, goldens, tensors_of
from tests.models.paged import PagedRun

CASES = cases()
GOLDENS = goldens()
TOLERANCE = 1e-4  # relative to the largest logit
# One for each kind of positions, of norms' places, of layers that differ, and of experts.
IN_THE_ENGINE = ("bloom", "gemma3", "gpt2", "gpt_oss", "olmo2", "qwen2_moe_in_turn")
# Families without a class in transformers; an isomorph of each is compared elsewhere.
WITHOUT_CLASS = {"baichuan", "internlm", "minicpm", "qwen"}


def write(case: dict[str, Any], folder: Path) -> None:
    """The checkpoint in Hugging Face layout."""
    (folder / "config.json").write_text(json.dumps(case["config"]))
    save_file(tensors_of(case), folder / "model.safetensors")


@pytest.mark.parametrize("name", CASES)
def test_i39_logits_and_greedy_tokens_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    """A prompt in two chunks, then token by token over the paged cache."""
    write(CASES[name], tmp_path)
    model = load_model(str(tmp_path))
    run = PagedRun(model.config, model.graphdef, model.params)
    prompt = np.concatenate([run.feed(PROMPT[:15]), run.feed(PROMPT[15:])])
    rows, tokens = [prompt[ROWS]], [int(prompt[-1].argmax())]
    for _ in range(NUM_GREEDY):
        rows.append(run.feed(tokens[-1:]))
        tokens.append(int(rows[-1][-1].argmax()))
    expected = GOLDENS[f"{name}.logits"]
    found = np.concatenate(rows)
    assert tokens[:NUM_GREEDY] == GOLDENS[f"{name}.tokens"].tolist()
    np.testing.assert_allclose(found, expected, atol=TOLERANCE * np.abs(expected).max())


def test_every_family_has_a_case() -> None:
    compared = {FAMILIES[case["config"]["architectures"][0]] for case in CASES.values()}
    names: dict[str, Any] = {one.__name__.rpartition(".")[2]: one for one in MODULES}  # type: ignore[attr-defined]
    assert {name for name, one in names.items() if one not in compared} == WITHOUT_CLASS


@pytest.mark.parametrize(
    "name", ["bloom", "gemma3", "gpt2", "gpt_oss", "olmo2", "qwen2_moe_in_turn"]
)
def test_i30_the_engine_gives_the_same_tokens_under_chunks_preemption_and_prefixes(
    name: str, tmp_path: Path
) -> None:
    """Three requests of 44 tokens in 80 places: prompts in chunks of 7, and someone must wait."""
    write(CASES[name], tmp_path)
    llm = LLM(
        str(tmp_path),
        skip_tokenizer_init=True,
        dtype="float32",
        block_size=4,
        num_gpu_blocks_override=20,
        max_model_len=48,
        max_num_seqs=3,
        max_num_batched_tokens=7,
        enable_chunked_prefill=True,
        enable_prefix_caching=True,
    )
    params = SamplingParams(temperature=0.0, max_tokens=NUM_GREEDY, ignore_eos=True)
    outputs = llm.generate([PROMPT, PROMPT[:20], PROMPT], params, use_tqdm=False)
    expected = GOLDENS[f"{name}.tokens"].tolist()
    assert [outputs[place].outputs[0].token_ids for place in (0, 2)] == [expected, expected]
    assert sum(llm.llm_engine.scheduler.num_preemptions.values()) > 0
