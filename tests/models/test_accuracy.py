"""SmolLM2 prefers the choices that transformers prefers (tests/golden/accuracy.json).

Written by `python -m benchmarks accuracy --golden`: token ids of 20 HellaSwag and 20 TruthfulQA-MC1
questions, and transformers' log-likelihood of each choice in float32.
"""

import json
from pathlib import Path

import pytest

from jax_engine import LLM
from tests.meta.trees import ROOT

GOLDEN = ROOT / "tests" / "golden" / "accuracy.json"
TOLERANCE = 2e-3  # a token, of a log-probability


@pytest.mark.model
@pytest.mark.parametrize("task", ["HellaSwag", "TruthfulQA-MC1"])
@pytest.mark.slow
def test_choices_are_those_of_transformers(task: str, smollm2_path: Path) -> None:
    llm = LLM(str(smollm2_path), dtype="float32", max_model_len=512, max_num_batched_tokens=512)
    questions = json.loads(GOLDEN.read_text("utf-8"))[task]
    rows = [row for choices in questions for row in choices]
    scored = iter(llm.score_tokens([token_ids for token_ids, _, _ in rows], use_tqdm=False))
    for choices in questions:
        ours, theirs = [], []
        for _, num_scored, total in choices:
            values = [value for value in next(scored)[-num_scored:] if value is not None]
            assert len(values) == num_scored
            ours.append(sum(values) / num_scored)
            theirs.append(total / num_scored)
            assert abs(ours[-1] - theirs[-1]) < TOLERANCE
        first, second = sorted(theirs, reverse=True)[:2]
        if first - second > 2 * TOLERANCE:
            assert ours.index(max(ours)) == theirs.index(first)
