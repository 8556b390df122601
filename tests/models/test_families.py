"""Each family against PyTorch transformers: logits and greedy tokens of tiny checkpoints (I39)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from jax_engine.models.load import load_model
from jax_engine.models.registry import FAMILIES, MODULES
from tests.golden.families.checkpoints import HERE, NUM_GREEDY, PROMPT, ROWS, cases, tensors_of
from tests.models.paged import PagedRun

CASES = cases()
GOLDENS = np.load(HERE / "logits.npz")
TOLERANCE = 1e-4  # relative to the largest logit
# Families without a class in transformers; an isomorph of each is compared elsewhere.
WITHOUT_CLASS = {"baichuan", "internlm", "minicpm", "qwen"}


@pytest.mark.parametrize("name", CASES)
def test_i39_logits_and_greedy_tokens_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    """A prompt in two chunks, then token by token over the paged cache."""
    case = CASES[name]
    (tmp_path / "config.json").write_text(json.dumps(case["config"]))
    save_file(tensors_of(case), tmp_path / "model.safetensors")
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
