"""What clients are given, at random, against the oracle's text and outputs (I50, I51).

Streams and final outputs, stop strings that span tokens, special tokens, characters in pieces,
log-probabilities, several samples, the best of them, aborts at any moment. Each example has a
vocabulary of its own; its stop strings are parts of the text that the oracle says will come.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from jax_engine import LLMEngine, RequestOutputKind
from tests.support.builders import Pool, build_pair, model_pair
from tests.support.client_view import Asked, Oracle, hold
from tests.support.engine_pair import MAX_LEN
from tests.support.engine_under_test import EngineUnderTest
from tests.support.in_process import InProcess, ThroughLoop
from tests.support.through_messages import ThroughMessages
from tests.support.tiny_llama import EOS, VOCAB
from tests.support.vocabularies import BYTES, PIECES, Words, byte_words, words

POOLS = [Pool(3, 17), Pool(16, 6)]  # the first is so small that requests preempt each other
WORDS = byte_words([*PIECES, *BYTES[120 : 120 + VOCAB - len(PIECES)]], EOS)
CUMULATIVE, DELTA, FINAL_ONLY = RequestOutputKind
SEEDS = [0, 1, 7, 2**32 + 7, 2**63 + 7, -7]
type Way = Callable[[LLMEngine], EngineUnderTest]
WAYS: list[Way] = [InProcess, ThroughLoop, ThroughMessages]
HAPPENS = {
    "stop string", "stop string included", "stop string behind min_tokens", "a token ended it",
    "aborted", "ranked", "logprobs", "output_kind CUMULATIVE", "output_kind DELTA",
    "output_kind FINAL_ONLY", "beams", "beams aborted", "a beam ended by a token",
    "the best of more beams",
}  # fmt: skip


@st.composite
def beams(draw: st.DrawFn) -> Asked:
    """Searches; of two beams at most, or one of them would be refused for the lack of blocks."""
    n = draw(st.integers(1, 2))
    max_tokens = draw(st.sampled_from([1, 4, 9, 12]))
    given: dict[str, Any] = {
        "use_beam_search": True,
        "n": n,
        "best_of": draw(st.sampled_from([None, 2])),
        "temperature": draw(st.sampled_from([0.0, 0.0, 0.7])),
        "length_penalty": draw(st.sampled_from([1.0, 0.0, 2.0])),
        "early_stopping": draw(st.sampled_from([False, True, "never"])),
        "max_tokens": max_tokens,
        "min_tokens": min(max_tokens, draw(st.sampled_from([0, 0, 1, 3]))),
        "ignore_eos": draw(st.booleans()),
        "stop_token_ids": draw(st.sampled_from([None, [5, 9, 11, 21]])),
        "include_stop_str_in_output": draw(st.booleans()),
        "skip_special_tokens": draw(st.booleans()),
        "detokenize": draw(st.sampled_from([True, True, False])),
        "prompt_logprobs": draw(st.sampled_from([None, None, 0, 3])),
        "output_kind": draw(st.sampled_from([DELTA, CUMULATIVE, FINAL_ONLY])),
    }
    return Asked(
        draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=9)),
        given,
        step=draw(st.sampled_from([0, 0, 2])),
        abort_at=draw(st.none() | st.sampled_from([0, 1, 2, 3, 5, 8])),
        in_outputs=draw(st.booleans()),
    )


@st.composite
def requests(draw: st.DrawFn) -> Asked:
    greedy = draw(st.booleans())
    n = 1 if greedy else draw(st.sampled_from([1, 2, 2, 3, 3, 6]))  # of 6 not all at once
    kind = draw(st.sampled_from([DELTA, DELTA, CUMULATIVE, FINAL_ONLY]))
    given: dict[str, Any] = {
        "n": n,
        "temperature": draw(st.sampled_from([0.0, 1e-6])) if greedy else 1.3,
        "seed": draw(st.sampled_from(SEEDS)),
        "top_k": draw(st.sampled_from([-1, 0, 0, 5])),
        "top_n_sigma": draw(st.sampled_from([0.0, 0.0, 1.5])),
        "top_p": draw(st.sampled_from([1.0, 1.0, 0.9])),
        "max_tokens": draw(st.sampled_from([1, 4, 9, 9, 12])),
        "min_tokens": draw(st.sampled_from([0, 0, 1, 3])),
        "ignore_eos": draw(st.booleans()),
        "stop_token_ids": draw(st.sampled_from([None, None, [5, 9, 11, 21]])),
        "include_stop_str_in_output": draw(st.booleans()),
        "skip_special_tokens": draw(st.booleans()),
        "logprobs": draw(st.sampled_from([None, None, 0, 3])),
        "prompt_logprobs": draw(st.sampled_from([None, None, None, 0, 3])),
        "output_kind": kind,
    }
    if given["max_tokens"] == 1:
        given["min_tokens"] = min(1, given["min_tokens"])
    if not greedy and kind is not DELTA and draw(st.integers(0, 2)) == 0:
        given["best_of"] = n + draw(st.integers(0, 2))
    cuts = st.tuples(st.integers(0, 5), st.integers(0, 12), st.integers(1, 6))
    stop = st.sampled_from(["ab", "\ufffd", "aba\u00e9", "never there"])
    text = draw(st.integers(0, 5)) > 0
    given["detokenize"] = text
    return Asked(
        draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=9)),
        given,
        draw(st.lists(cuts, min_size=draw(st.integers(0, 1)), max_size=2)) if text else (),
        draw(st.lists(stop, max_size=1)) if text else (),
        draw(st.sampled_from([0, 0, 0, 2])),
        draw(st.none() | st.none() | st.sampled_from([0, 1, 2, 3, 5, 8])),
        draw(st.booleans()),
    )


SAMPLED = {"temperature": 1.3, "max_tokens": 12, "ignore_eos": True, "logprobs": 2}
QUOTED = SAMPLED | {"seed": 4, "output_kind": DELTA, "prompt_logprobs": 1}
INCLUDED = SAMPLED | {"include_stop_str_in_output": True}


STOPPED = Asked([3, 4], SAMPLED | {"seed": 1, "output_kind": DELTA, "n": 3}, [(0, 4, 3), (1, 2, 5)])
LATE = Asked([3, 4], INCLUDED | {"seed": 2, "min_tokens": 3}, [(0, 9, 2)])
RANKED = {"output_kind": FINAL_ONLY, "best_of": 4, "n": 2}
SHORT = {"stop_token_ids": list(range(9, 25)), "include_stop_str_in_output": True}
LEFT_OUT = {"stop_token_ids": list(range(9, 25)), "max_tokens": 12, "output_kind": FINAL_ONLY}
CHOSEN = {"logprobs": None, "logprob_token_ids": [7, 30, 2], "output_kind": DELTA}
GREEDY = {"temperature": 1e-6, "top_k": 3, "max_tokens": 9, "skip_special_tokens": False}
ABORTED = QUOTED | {"n": 2, "detokenize": True}
BEAMS = {"use_beam_search": True, "n": 2, "max_tokens": 9, "ignore_eos": True, "temperature": 0.0}
CASES = {
    "stop strings": [STOPPED, LATE],
    "best of": [
        Asked([5], SAMPLED | {"seed": 3} | RANKED, [(0, 9, 2)]),
        Asked([5, 6], SAMPLED | {"seed": 8} | RANKED | {"output_kind": CUMULATIVE}),
    ],
    "aborts": [
        Asked([6] * 9, QUOTED, (), ["never"], 0, 4, True),
        *(Asked([6, 7], ABORTED | {"seed": i}, (), ["\ufffd\ufffd\ufffd"], 0, i) for i in range(4)),
    ],
    "ends by tokens": [
        Asked([3], SAMPLED | SHORT | {"seed": i, "output_kind": kind, "ignore_eos": False}, cuts)
        for i, kind in enumerate([CUMULATIVE, DELTA, FINAL_ONLY])
        for cuts in ([], [(0, 1, 2)])
    ]
    + [Asked([3], LEFT_OUT | {"seed": i}) for i in range(3)],
    "last tokens": [
        Asked([3], {"seed": i, "max_tokens": 3, "output_kind": kind}, (), ["zz\ufffd"] * (i % 2))
        for i, kind in enumerate([CUMULATIVE, DELTA, FINAL_ONLY] * 2)
    ],
    "parts": [Asked([9, 9], SAMPLED | {"seed": 2**63 + 7, "n": 6, "output_kind": DELTA})],
    "rows after an abort": [  # of a step that was planned with what is aborted then
        Asked([3, 4], SAMPLED | {"seed": 9}, (), (), 0, 3),
        *(Asked([5, 6 + i, 7], QUOTED | {"seed": i}, (), (), 1 + i) for i in range(3)),
    ],
    "beams": [
        Asked([3, 4], BEAMS | {"n": 3}),
        Asked([5, 6], BEAMS | {"ignore_eos": False, "stop_token_ids": list(range(9, 25))}),
        Asked([5, 6, 7], BEAMS | {"best_of": 3, "temperature": 0.7, "length_penalty": 2.0}),
        Asked([5, 6, 7], BEAMS | {"output_kind": DELTA}, step=1),
    ],
    "beams that are aborted": [
        Asked([3, 5 + i], BEAMS | {"skip_special_tokens": False}, (), (), i // 2, i, i % 2 == 1)
        for i in range(5)
    ],
    "log-probabilities": [
        Asked([4, 5, 6], SAMPLED | CHOSEN | {"seed": 5, "n": 2}),
        Asked([4, 5], SAMPLED | {"seed": 6, "prompt_logprobs": 3, "detokenize": False}),
        Asked([8], GREEDY | {"seed": 1, "logprobs": 3, "ignore_eos": True}),
        Asked([8], GREEDY | {"seed": 1, "detokenize": False}),
    ],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.slow
def test_cases_by_hand(way: Way) -> None:
    """Each event that must happen happens in one of them: so all of them are one test."""
    seen: Counter[str] = Counter()
    for name, asked in CASES.items():
        hold_pair(seen, POOLS[0], WORDS, asked, way, ahead=name != "stop strings")

    assert not HAPPENS - seen.keys(), f"never happened: {HAPPENS - seen.keys()}"


@pytest.mark.parametrize("way", [InProcess, ThroughMessages])
@given(
    pool=st.sampled_from(POOLS),
    vocabulary=words(VOCAB, EOS),
    asked=st.lists(requests() | requests() | beams(), min_size=1, max_size=3),
    ahead=st.booleans(),
)
def test_clients_are_given_what_the_oracle_says(
    way: Way, pool: Pool, vocabulary: Words, asked: list[Asked], ahead: bool
) -> None:
    """I50: texts, tokens, reasons and log-probabilities of each output of each request."""
    happened: Counter[str] = Counter()
    hold_pair(happened, pool, vocabulary, asked, way, ahead=ahead)
    for name in happened:
        event(name)


def hold_pair(
    seen: Counter, pool: Pool, vocabulary: Words, asked: list[Asked], way: Way, *, ahead: bool
) -> None:
    engine, reference = build_pair(
        pool,
        num_cpu_blocks=60,
        prefix_caching=True,
        async_scheduling=ahead,
        max_num_batched_tokens=MAX_LEN,
        tokenizer=vocabulary.tokenizer,
    )
    oracle = Oracle(reference, model_pair(None)[1], vocabulary)
    hold(way(engine), oracle, asked, seen)
