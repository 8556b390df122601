"""Outputs made of pieces: however a reader cuts them, together they are the same.

The pieces are those of a real engine without a device. `test_results.py` holds the outputs to the
oracle, and `tests/serving/test_output_fields.py` those of another process to this one's.
"""

from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import event, example, given
from hypothesis import strategies as st

from jax_engine import FlatLogprobs, LLMEngine, RequestOutputKind, SamplingParams
from jax_engine.config.speculative_config import SpeculativeConfig
from jax_engine.engine.assembler import Assembler
from jax_engine.engine.engine_core_output import EngineCoreOutput, SequenceOutput
from jax_engine.engine.requests.prompts import Prompt
from jax_engine.outputs import RequestOutput
from jax_engine.serving.api.response_logprobs import Offsets
from tests.support.builders import SETTINGS, pair_without_device
from tests.support.strategies import EOS
from tests.support.vocabularies import Words, byte_words

CUMULATIVE, DELTA, FINAL_ONLY = RequestOutputKind
# Half characters, so that text is held back; and stop strings that several tokens complete.
HALVES, LETTERS = (
    byte_words([b"\xc3", b"\xa9", b""], EOS),
    byte_words([b"a", b"ba", b"</s>"], EOS),
)
PROMPT = [0, 1, 1, 0, 1, 0]
FREE = {"seed": 3, "max_tokens": 8, "temperature": 2.0, "ignore_eos": True}


def requests() -> st.SearchStrategy[dict[str, Any]]:
    """Parameters of a request that may be read as it grows."""
    return st.fixed_dictionaries(
        {
            "seed": st.integers(0, 9),
            "n": st.integers(1, 3),
            "max_tokens": st.integers(1, 9),
            "min_tokens": st.sampled_from([0, 0, 1]),
            "ignore_eos": st.booleans(),
            "stop": st.sampled_from([None, ["\u00e9\u00e9"], ["aba", "\ufffd"], ["bb"]]),
            "stop_token_ids": st.sampled_from([None, [1]]),
            "include_stop_str_in_output": st.booleans(),
            "skip_special_tokens": st.booleans(),
            "logprobs": st.sampled_from([None, 0, 2]),
            "prompt_logprobs": st.sampled_from([None, 1]),
            "flat_logprobs": st.booleans(),
        }
    )


def news_engine(words: Words) -> LLMEngine:
    """An engine without a device whose steps have at most 4 tokens; earlier tokens are guessed."""
    settings = replace(SETTINGS, max_num_batched_tokens=4)
    guesses = SpeculativeConfig(prompt_lookup_min=1, prompt_lookup_max=2)
    engine, _ = pair_without_device(
        settings, ahead=False, tokenizer=words.tokenizer, speculation=guesses
    )
    return engine


def news_of(words: Words, params: SamplingParams, abort_at: int | None) -> list[EngineCoreOutput]:
    """Outputs of all steps of one request, which is aborted before step `abort_at`."""
    engine = news_engine(words)
    engine.add_request("a", PROMPT, params)
    found: list[Any] = []
    step = 0
    while engine.has_unfinished_requests():
        if step == abort_at:
            found += engine.abort_updates(["a"])
        else:
            engine.run_step()
            found += engine.take_updates()
        step += 1
    outputs = [output for _, core_output in found for output in core_output.outputs]
    assert all(output.token_ids or output.finish_reason for output in outputs)
    ends = [output.index for output in outputs if output.finish_reason]
    assert sorted(ends) == sorted({output.index for output in outputs}), "handed over once"
    return [core_output for _, core_output in found]


def readings(
    words: Words, params: SamplingParams, core_output: list[EngineCoreOutput], cuts: set[int]
) -> list[RequestOutput]:
    """What a reader reads that reads behind these news, and behind the last."""
    assembler = Assembler("a", Prompt(None, PROMPT), params, words.tokenizer, 0.0)
    found, then = [], []
    for number, one in enumerate(deepcopy(core_output), 1):
        assembler.take(one)
        if number in cuts or number == len(core_output):
            found.append(assembler.read())
            then.append(deepcopy(found[-1]))
    assert found == then, "an output that was given out has changed"
    assert [one.finished for one in found] == [False] * (len(found) - 1) + [True]
    return found


def joined(words: Words, params: SamplingParams, deltas: list[RequestOutput]) -> dict[str, Any]:
    """All that a client has in the end, with the place of each token in the text."""
    samples: dict[int, list[Any]] = {}
    offsets: dict[int, Offsets] = {}
    for output in deltas:
        for one in output.outputs:
            if one.index not in samples:
                hides = params.skip_special_tokens
                offsets[one.index] = Offsets(words.tokenizer, PROMPT, skip_special_tokens=hides)
                samples[one.index] = ["", [], [], []]
            sample = samples[one.index]
            sample[0] += one.text
            sample[1] += one.token_ids
            sample[2] += offsets[one.index].of_output(one.token_ids)
            sample[3] += one.logprobs or ()
            sample[4:] = [one.cumulative_logprob, one.finish_reason, one.stop_reason]
    given = [one.prompt_logprobs for one in deltas if one.prompt_logprobs is not None]
    last = deltas[-1]
    prompt = [list(one) for one in given]
    return {"samples": samples, "prompt": prompt, "rest": (last.num_cached_tokens, last.finished)}


@given(
    words=st.sampled_from([HALVES, LETTERS]),
    asked=requests(),
    detokenize=st.booleans(),
    abort_at=st.sampled_from([None, None, 0, 1, 2, 4]),
    cuts=st.sets(st.integers(1, 9)),
)
@example(HALVES, FREE | {"n": 3}, True, 3, {1, 2})  # in the middle of a character
@example(LETTERS, FREE | {"stop": ["aba"], "logprobs": 1}, True, None, {1, 3, 4})
@example(LETTERS, FREE | {"stop": ["abab!"]}, True, 4, {2})  # as a stop string may begin
@example(HALVES, FREE | {"stop_token_ids": [1], "prompt_logprobs": 0}, True, None, {1})
@example(HALVES, FREE | {"stop": ["\ufffd"], "max_tokens": 1}, True, None, set())  # at the end
@example(LETTERS, FREE | {"prompt_logprobs": 1, "flat_logprobs": True}, True, 0, set())
def test_however_pieces_are_cut_the_outputs_are_the_same(
    words: Words, asked: dict[str, Any], detokenize: bool, abort_at: int | None, cuts: set[int]
) -> None:
    asked = asked | {"detokenize": detokenize or asked.get("stop") is not None}
    kinds = [SamplingParams(**asked, output_kind=kind) for kind in RequestOutputKind]
    cumulative, delta, final = kinds
    final.flat_logprobs = not delta.flat_logprobs  # which changes the form alone
    [whole] = readings(words, final, news_of(words, final, abort_at), set())
    expected = joined(words, final, [whole])
    core_output = news_of(words, delta, abort_at)
    assert joined(words, delta, readings(words, delta, core_output, cuts)) == expected
    grown = readings(words, cumulative, core_output, cuts)
    assert joined(words, cumulative, grown[-1:]) == expected
    for before, after in pairwise(grown):
        for one in before.outputs:
            later = next(other for other in after.outputs if other.index == one.index)
            assert later.text.startswith(one.text)
            assert later.token_ids[: len(one.token_ids)] == one.token_ids
            assert list(later.logprobs or [])[: len(one.token_ids)] == list(one.logprobs or [])
    event(f"ended by {whole.outputs[0].finish_reason}, {type(whole.outputs[0].stop_reason)}")
    for one in whole.outputs:
        assert (one.logprobs is not None) == (final.logprobs is not None)
        assert one.logprobs is None or len(one.logprobs) == len(one.token_ids)
        assert one.logprobs is None or isinstance(one.logprobs, FlatLogprobs) == final.flat_logprobs


def test_a_delta_has_the_samples_with_something_new_in_their_order() -> None:
    """The second sample came first; whoever has nothing new is left out, and an end comes once."""
    params = SamplingParams(n=3, logprobs=0, output_kind=DELTA)
    assembler = Assembler("a", Prompt(None, PROMPT), params, None, 0.0)
    steps: list[tuple[list[tuple[int, list[int], str | None]], list[int]]] = [
        ([(1, [5], None), (0, [6], None)], [0, 1]),
        ([(1, [7], None)], [1]),
        ([(0, [], "abort")], [0]),
        ([(1, [8], "length"), (2, [4], None)], [1, 2]),
        ([(2, [], "stop")], [2]),
    ]
    for number, (new, expected) in enumerate(steps, 1):
        outputs = [SequenceOutput(index, ids, finish_reason=end) for index, ids, end in new]
        assembler.take(EngineCoreOutput("a", outputs, number == len(steps), 0))
        found = assembler.read().outputs
        assert [one.index for one in found] == expected
        assert {one.index: one.token_ids for one in found} == {i: ids for i, ids, _ in new}
