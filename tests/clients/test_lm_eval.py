"""lm-eval's `local-completions` takes the answers that transformers takes.

The questions are those of `benchmarks.accuracy`, of which `tests/golden/accuracy.json` has token
ids and transformers' log-likelihoods in float32. The server tells their text.
"""

import json
from pathlib import Path
from typing import Any

import httpx
import lm_eval
from lm_eval.tasks import TaskManager

GOLDEN = Path(__file__).parents[1] / "golden" / "accuracy.json"
TOLERANCE = 2e-3  # a token, of a log-probability
NUM_QUESTIONS = 20


def text_of(client: httpx.Client, token_ids: list[int]) -> str:
    answer = client.post("/detokenize", json={"tokens": token_ids})
    return str(answer.raise_for_status().json()["prompt"])


def task_of(client: httpx.Client, questions: list[Any], folder: Path) -> str:
    """A task of lm-eval's: its YAML, and the questions as JSON lines."""
    lines = []
    for choices in questions:
        ids, num_scored, _ = choices[0]
        ends = [text_of(client, one[-n:]).removeprefix(" ") for one, n, _ in choices]
        lines.append({"query": text_of(client, ids[:-num_scored]), "choices": ends, "gold": 0})
    data = folder / "questions.jsonl"
    data.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    task = {
        "task": "twenty_questions",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "output_type": "multiple_choice",
        "test_split": "test",
        "doc_to_text": "query",
        "doc_to_choice": "choices",
        "doc_to_target": "gold",
        "metric_list": [{"metric": "acc"}],
    }
    path = folder / "twenty_questions.yaml"
    path.write_text(json.dumps(task), "utf-8")  # JSON is YAML
    return str(path)


def test_twenty_questions(url: str, tmp_path: Path) -> None:
    questions = json.loads(GOLDEN.read_text("utf-8"))["HellaSwag"][:NUM_QUESTIONS]
    with httpx.Client(base_url=url) as client:
        task = task_of(client, questions, tmp_path)
    found = lm_eval.simple_evaluate(
        model="local-completions",
        model_args={
            "model": "smollm2",
            "base_url": f"{url}/v1/completions",
            "tokenizer_backend": "remote",
            "batch_size": 8,
            "max_length": 512,
        },
        tasks=[task],
        task_manager=TaskManager(include_defaults=False),  # reading those takes seconds
        log_samples=True,
        bootstrap_iters=0,
    )
    samples = found["samples"]["twenty_questions"]
    assert len(samples) == NUM_QUESTIONS
    same = 0
    for sample in samples:
        choices = questions[sample["doc_id"]]
        ours = [pair[0] for pair in sample["filtered_resps"]]
        theirs = [total for _, _, total in choices]
        for mine, (_, num_scored, total) in zip(ours, choices, strict=True):
            same += abs(mine - total) < TOLERANCE * num_scored
        if max(theirs) - sorted(theirs)[-2] > 0.1:
            assert ours.index(max(ours)) == theirs.index(max(theirs)), sample["doc"]
    assert same >= 0.95 * 4 * NUM_QUESTIONS  # lm-eval may cut a text before other tokens
