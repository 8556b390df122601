"""An engine with guesses and one without, which take turns at the same requests."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks.speculation.forced import Known
from benchmarks.speculation.texts import Messages
from jax_engine import LLM, RequestOutput, SamplingParams, TokensPrompt

SMALL, ROWS = 64, 8  # tokens of a step, sequences
BASE: dict[str, Any] = {
    "max_model_len": 2048,
    "max_num_seqs": 8,
    "num_gpu_blocks_override": 1024,
    "enable_prefix_caching": False,  # the second engine to be asked computes the prompt as well
}


def decode_seconds(output: RequestOutput) -> float:
    """From the first token to the end."""
    times = output.metrics
    assert times.finished_time is not None and times.first_token_time is not None
    return times.finished_time - times.first_token_time


def one_by_one(
    plain: LLM, guessing: LLM, prompts: Sequence[list[int]], params: SamplingParams, known: Known
) -> dict[str, float]:
    """Each prompt alone, first without guesses, so that a forced drafter can know the answer.

    Raises:
        AssertionError: An answer with guesses is another one.
    """
    spent: list[tuple[float, float]] = []
    tokens = drafted = accepted = 0
    for prompt in prompts:
        before = _generate(plain, prompt, params)
        known.texts = [[*prompt, *before.outputs[0].token_ids]]
        after = _generate(guessing, prompt, params)
        assert after.outputs[0].token_ids == before.outputs[0].token_ids
        spent.append((decode_seconds(before), decode_seconds(after)))
        tokens += len(before.outputs[0].token_ids) - 1  # the first comes with the prompt
        drafted += after.metrics.num_draft_tokens
        accepted += after.metrics.num_accepted_tokens
    slow, fast = (sum(one) for one in zip(*spent, strict=True))
    return {
        "plain_tokens_per_s": round(tokens / slow, 1),
        "tokens_per_s": round(tokens / fast, 1),
        "speed_ratio": round(slow / fast, 3),
        "median_speed_ratio": round(median(one / other for one, other in spent), 3),
        "accepted_percent": round(100 * accepted / drafted, 1) if drafted else 0.0,
        "tokens_per_step": round(tokens / (tokens - accepted), 2),
    }


def together(
    plain: LLM, guessing: LLM, rounds: Sequence[list[list[int]]], params: Sequence[SamplingParams]
) -> dict[str, float]:
    """All prompts of a round at once, by both engines in turn; the median of the rounds."""
    ratios, speeds = [], []
    for number, prompts in enumerate(rounds):
        asked = [TokensPrompt(prompt_token_ids=one) for one in prompts]
        seconds = {}
        engines = {"plain": plain, "guessing": guessing}
        for name in sorted(engines, reverse=number % 2 == 0):
            outputs = engines[name].generate(asked, list(params), use_tqdm=False)
            seconds[name] = max(map(decode_seconds, outputs))
        tokens = sum(len(one.outputs[0].token_ids) for one in outputs)
        ratios.append(seconds["plain"] / seconds["guessing"])
        speeds.append(tokens / seconds["plain"])
    return {
        "plain_tokens_per_s": round(median(speeds), 1),
        "median_speed_ratio": round(median(ratios), 3),
    }


def chat_prompts(llm: LLM, conversations: Sequence[Messages]) -> list[list[int]]:
    """Their token ids."""
    tokenizer = llm.get_tokenizer()
    options = {"add_generation_prompt": True, "return_dict": False}
    return [list(tokenizer.apply_chat_template(one, **options)) for one in conversations]


def compile_small_steps(*engines: LLM) -> None:
    """All that steps of a few rows take, with guesses and without: nothing compiles while timed."""
    for llm in engines:
        llm.llm_engine.worker.compile_ahead(SMALL, ROWS, use_tqdm=False)


def _generate(llm: LLM, prompt: list[int], params: SamplingParams) -> RequestOutput:
    (output,) = llm.generate(TokensPrompt(prompt_token_ids=prompt), params, use_tqdm=False)
    return output
