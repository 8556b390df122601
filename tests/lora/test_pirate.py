"""The adapter in examples/adapters makes the default model talk like a pirate, as under PEFT."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jax_engine import LLM, LoRARequest, SamplingParams
from tests.golden.adapter_cases import NUM_PIRATE, PIRATE, QUESTIONS

pytestmark = pytest.mark.model
GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "pirate.json").read_text())
GREEDY = SamplingParams(temperature=0.0, max_tokens=NUM_PIRATE)
LORA = LoRARequest("pirate", 1, str(PIRATE))


@pytest.fixture(scope="module")
def llm(smollm2_path: Path) -> Iterator[LLM]:
    yield LLM(
        str(smollm2_path),
        dtype="float32",
        enable_lora=True,
        max_lora_rank=8,
        max_model_len=128,
        max_num_seqs=16,
        num_gpu_blocks_override=128,
    )


@pytest.mark.slow
def test_each_question_is_answered_in_two_manners(llm: LLM) -> None:
    """One batch has requests with the adapter and without."""
    chats: Any = [[{"role": "user", "content": question}] for question in QUESTIONS for _ in "ab"]
    outputs = llm.chat(chats, GREEDY, lora_request=[LORA, None] * len(QUESTIONS))
    alone = llm.chat(chats[::2], GREEDY)
    assert [one["question"] for one in GOLDEN["answers"]] == list(QUESTIONS)
    for golden, own, other, base in zip(
        GOLDEN["answers"], outputs[::2], outputs[1::2], alone, strict=True
    ):
        assert own.outputs[0].text == golden["text"]
        assert list(own.outputs[0].token_ids) == golden["ids"]
        assert own.outputs[0].text.startswith("Arr, matey!")
        assert "matey" not in other.outputs[0].text
        assert other.outputs[0].token_ids == base.outputs[0].token_ids
