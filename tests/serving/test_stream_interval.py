"""`stream_interval`: how many tokens a reader is told of at once."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from jax_engine import LLM, AsyncLLM, RequestOutputKind, SamplingParams
from jax_engine.engine.assembler import Assembler
from jax_engine.engine.engine_core_output import EngineCoreOutput, SequenceOutput
from jax_engine.engine.requests.prompts import Prompt
from jax_engine.serving.open_requests import CompletionStream
from tests.support.engine_in_thread import in_threads, run_client

CUMULATIVE, DELTA, FINAL_ONLY = RequestOutputKind
SETTINGS: dict[str, Any] = {"block_size": 4, "max_model_len": 64, "num_gpu_blocks_override": 60}
PROMPT = "Once"
PARAMS = SamplingParams(temperature=0.0, max_tokens=13, ignore_eos=True)
TWO = SamplingParams(seed=3, n=2, max_tokens=13, ignore_eos=True)


def core_output(tokens: dict[int, int], *, end: bool) -> EngineCoreOutput:
    """A token of each sample."""
    reason = "length" if end else None
    outputs = [
        SequenceOutput(index, [token], finish_reason=reason) for index, token in tokens.items()
    ]
    return EngineCoreOutput("a", outputs, end, 0)


def stream_of_two(kind: RequestOutputKind, interval: int) -> CompletionStream:
    params = SamplingParams(n=2, seed=0, detokenize=False, output_kind=kind)
    return CompletionStream(Assembler("a", Prompt(None, [1]), params, None, 0.0), interval)


def read_after_each_step(kind: RequestOutputKind, interval: int, steps: int) -> list[list[int]]:
    """The numbers of tokens in each output; of two samples, the second begins three steps late."""
    stream = stream_of_two(kind, interval)
    found = []
    for step in range(steps):
        tokens = {0: step} if step < 3 else {0: step, 1: step}
        stream.take(core_output(tokens, end=step == steps - 1))
        if (output := stream.read()) is not None:
            found.append([len(one.token_ids) for one in output.outputs])
    return found


@pytest.mark.parametrize(
    ("kind", "interval", "expected"),
    [
        (DELTA, 4, [[1], [3, 1], [4, 4], [1, 1]]),
        (CUMULATIVE, 4, [[1], [4, 1], [8, 5], [9, 6]]),
        (DELTA, 1, [[1], [1], [1], *[[1, 1]] * 6]),
        (DELTA, 100, [[1], [3, 1], [5, 5]]),
        (FINAL_ONLY, 4, [[9, 6]]),
    ],
)
def test_a_reader_is_told_of_first_tokens_full_intervals_and_the_end(
    kind: RequestOutputKind, interval: int, expected: list[list[int]]
) -> None:
    assert read_after_each_step(kind, interval, 9) == expected


def test_the_end_of_one_of_two_samples_is_told_at_once() -> None:
    stream = stream_of_two(DELTA, 9)
    stream.take(core_output({0: 1, 1: 1}, end=False))
    assert stream.read() is not None
    ended = SequenceOutput(0, [2], finish_reason="length")
    stream.take(EngineCoreOutput("a", [ended, SequenceOutput(1, [2])], False, 0))
    output = stream.read()
    assert output is not None and not output.finished
    assert [one.finish_reason for one in output.outputs] == ["length", None]


async def told(llm: AsyncLLM, params: SamplingParams, kind: RequestOutputKind) -> list[Any]:
    asked = dataclasses.replace(params, output_kind=kind)
    return [one.outputs async for one in llm.generate(PROMPT, asked)]


async def all_told(llm: AsyncLLM) -> list[Any]:
    found = [await told(llm, PARAMS, kind) for kind in (DELTA, CUMULATIVE, FINAL_ONLY)]
    return [*found, await told(llm, TWO, DELTA)]


def test_no_token_is_lost(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs are at most as many as intervals: a slow reader finds several in one."""
    offline = LLM(str(checkpoint), **SETTINGS)
    [[expected], two] = [offline.generate([PROMPT], one)[0].outputs for one in (PARAMS, TWO)]
    in_threads(monkeypatch)
    llm = AsyncLLM(str(checkpoint), stream_interval=5, **SETTINGS)
    deltas, whole, [[end]], of_two = run_client(all_told(llm))
    llm.shutdown()
    assert "".join(one.text for [one] in deltas) == expected.text
    assert whole[-1][0].text == end.text == expected.text
    assert len(deltas) <= 4 and len(whole) <= 4
    for sample in two:
        mine = [one for outputs in of_two for one in outputs if one.index == sample.index]
        assert [token for one in mine for token in one.token_ids] == list(sample.token_ids)
        assert len(mine) <= 4
