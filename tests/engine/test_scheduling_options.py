"""Settings and arguments that decide who runs when, from `LLM` to the step."""

import pytest

from jax_engine import LLM, InvalidRequestError, RequestTooLargeError, SamplingParams
from tests.support.in_process import run

SETTINGS = {"block_size": 4, "max_model_len": 40, "num_gpu_blocks_override": 60}


@pytest.fixture(scope="module")
def llm(of_bytes):
    return LLM(of_bytes, **SETTINGS)


@pytest.fixture(scope="module")
def ranked(of_bytes):
    """One request at a time, by priority."""
    return LLM(of_bytes, max_num_seqs=1, scheduling_policy="priority", **SETTINGS)


def greedy(**changes) -> SamplingParams:
    return SamplingParams(**({"temperature": 0.0, "max_tokens": 4, "ignore_eos": True} | changes))


def chunks_of(llm: LLM, run) -> dict[int, list[int]]:
    """Tokens of each request in each step, while `run()`."""
    worker = llm.llm_engine.worker
    launch, chunks = worker.launch, {}

    def note(step):
        for row in step.rows:
            chunks.setdefault(row.request, []).append(len(row.tokens))
        return launch(step)

    worker.launch = note
    try:
        run()
    finally:
        worker.launch = launch
    return chunks


@pytest.mark.slow
def test_a_long_prefill_leaves_room_for_others_in_each_step(of_bytes, llm) -> None:
    """long_prefill_token_threshold: the short prompt is answered before the long one is read."""
    chunked = LLM(of_bytes, long_prefill_token_threshold=3, **SETTINGS)
    prompts, outputs = [list(range(10)), [7, 8]], []
    chunks = chunks_of(
        chunked, lambda: outputs.extend(chunked.generate(prompts, greedy(), use_tqdm=False))
    )
    assert list(chunks.values()) == [[3, 3, 3, 1, 1, 1, 1], [2, 1, 1, 1]]
    long, short = (one.metrics for one in outputs)
    assert short.first_token_time < long.first_token_time
    whole = llm.generate(prompts, greedy(), use_tqdm=False)
    assert [one.outputs[0].token_ids for one in outputs] == [
        one.outputs[0].token_ids for one in whole
    ]


def test_a_late_request_of_higher_priority_overtakes(ranked) -> None:
    engine = ranked.llm_engine
    engine.add_request("first", [5, 6], greedy(), priority=1)
    engine.add_request("second", [7, 8], greedy(), priority=1)
    engine.step()
    engine.add_request("urgent", [9], greedy(), priority=0)
    finished = [one.request_id for one in run(engine) if one.finished]
    assert finished == ["first", "urgent", "second"]  # who runs already is not sent away


def test_generate_and_chat_take_priorities(ranked, llm) -> None:
    def order(outputs) -> list[int]:
        return sorted(range(3), key=lambda i: outputs[i].metrics.first_token_time)

    outputs = ranked.generate([[5], [6], [7]], greedy(), priority=[2, 0, 1], use_tqdm=False)
    assert order(outputs) == [1, 2, 0]
    chats = [[{"role": "user", "content": text}] for text in "abc"]
    outputs = ranked.chat(chats, greedy(), use_tqdm=False, priority=[2, 1, 0])
    assert order(outputs) == [2, 1, 0]
    with pytest.raises(
        InvalidRequestError, match="priority must have one number for each of the 3"
    ):
        ranked.chat(chats, greedy(), use_tqdm=False, priority=[2])


@pytest.mark.parametrize(("keep", "kept"), [(3, 3), (60, 38), (-1, 38), (38, 38), (1, 1)])
def test_prompts_are_truncated_from_the_left(llm, keep: int, kept: int) -> None:
    prompt = list(range(38))
    params = greedy(truncate_prompt_tokens=keep, max_tokens=1)
    (output,) = llm.generate([prompt], params, use_tqdm=False)
    assert output.prompt_token_ids == prompt[-kept:]
    (wanted,) = llm.generate([prompt[-kept:]], greedy(max_tokens=1), use_tqdm=False)
    assert output.outputs[0].token_ids == wanted.outputs[0].token_ids


def test_truncation_comes_before_the_checks_of_lengths(llm) -> None:
    """-1 keeps what leaves room for one token of output; text is truncated as tokens are."""
    prompt = [i % 200 for i in range(500)]
    with pytest.raises(RequestTooLargeError, match="500 tokens"):
        llm.generate([prompt], greedy(), use_tqdm=False)
    (output,) = llm.generate([prompt], greedy(truncate_prompt_tokens=-1), use_tqdm=False)
    assert output.prompt_token_ids == prompt[-39:]
    assert len(output.outputs[0].token_ids) == 1
    text = "x" * 100 + "abc"
    (output,) = llm.generate(text, greedy(truncate_prompt_tokens=3), use_tqdm=False)
    assert (output.prompt, output.prompt_token_ids) == (text, list(b"abc"))
    with pytest.raises(RequestTooLargeError, match="40 tokens"):
        llm.generate([prompt], greedy(truncate_prompt_tokens=40), use_tqdm=False)
    with pytest.raises(InvalidRequestError, match=r"prompt_token_ids\[0\]"):
        llm.generate([[-1, 5]], greedy(truncate_prompt_tokens=1), use_tqdm=False)
