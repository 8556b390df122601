"""The engine with adapters that PEFT saved answers as PEFT does (tests/golden/adapters)."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jax_engine import LLM, LoRARequest, SamplingParams
from jax_engine.outputs import RequestOutput
from tests.golden.adapter_cases import CASES, FOLDER, GPTQ_CASE, NUM_GREEDY
from tests.golden.families.checkpoints import PROMPT, ROWS, VOCABULARY, cases, goldens
from tests.golden.families.parity import write
from tests.models.test_families import TOLERANCE
from tests.models.test_quantised_models import write_quantised

GOLDENS = dict(np.load(FOLDER / "logits.npz"))
BASES = goldens()
MAX_RANK = 6
GREEDY = SamplingParams(
    temperature=0.0,
    max_tokens=NUM_GREEDY,
    ignore_eos=True,
    logprobs=VOCABULARY,
    prompt_logprobs=VOCABULARY,
)


def engine_of(name: str, folder: Path, **options: Any) -> LLM:
    """The case's base in an engine that takes adapters."""
    if name == GPTQ_CASE:
        write_quantised(folder, "gptq")
    else:
        write(cases()[CASES[name].base], folder)
    return LLM(
        str(folder),
        dtype="float32",
        skip_tokenizer_init=True,
        max_model_len=64,
        max_num_batched_tokens=16,  # the prompt in two chunks
        max_num_seqs=4,
        num_gpu_blocks_override=32,
        max_logprobs=VOCABULARY,
        enable_lora=True,
        max_loras=1,
        max_lora_rank=MAX_RANK,
        **options,
    )


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def logprobs_of(output: RequestOutput) -> np.ndarray:
    """All log-probabilities behind the kept tokens of the prompt, and behind what was written.

    The last token of the prompt is followed by the first that was written.
    """
    prompt, written = output.prompt_logprobs, output.outputs[0].logprobs
    assert prompt is not None and written is not None
    places = [*prompt[1:], *written]
    kept = [*ROWS, *range(len(PROMPT), len(places))]
    return np.array([[places[at][i].logprob for i in range(VOCABULARY)] for at in kept])


def check(output: RequestOutput, logits: np.ndarray, tokens: list[int]) -> None:
    """Tokens, and log-probabilities within the tolerance of the families' logits."""
    assert list(output.outputs[0].token_ids) == tokens
    found, expected = logprobs_of(output), log_softmax(logits)
    size = np.abs(logits).max()
    assert np.abs(found - expected).max() / size < TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_answers_are_those_of_peft(name: str, tmp_path: Path) -> None:
    """Requests without an adapter run beside them, and get transformers' answers of the base."""
    llm = engine_of(name, tmp_path)
    lora = LoRARequest(name, 1, str(FOLDER / name))
    asked: Any = [{"prompt_token_ids": PROMPT}] * 3
    first, base, second = llm.generate(asked, GREEDY, lora_request=[lora, None, lora])
    for output in (first, second):
        check(output, GOLDENS[f"{name}.logits"], GOLDENS[f"{name}.tokens"].tolist())
    own, other = logprobs_of(first), logprobs_of(base)
    assert np.abs(own - other).max() > 0.05 * np.abs(own).max(), "the adapter says something else"
    if name != GPTQ_CASE:
        case = CASES[name].base
        kept = len(ROWS) + NUM_GREEDY - 1
        tokens = BASES[f"{case}.tokens"][:NUM_GREEDY].tolist()
        check(base, BASES[f"{case}.logits"][:kept], tokens)
