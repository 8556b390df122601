"""What users of other engines have reported of guesses, as tests of the kind of fault.

The right answer is that of each request alone in an engine without guesses, tokens, texts and log-
probabilities to the bit. What servers were reported for is in `tests/serving/test_reports.py`.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from jax_engine import LLMEngine, SamplingParams, StructuredOutputsParams
from jax_engine.config.speculative_config import SpeculativeConfig
from jax_engine.outputs import RequestOutput
from tests.support.drafters import Guess, perfect, speculation, unruly
from tests.support.speaking import BLOCK, EOS, MAX_SEQS, VOCAB, followed_by, speaking_engine

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer", "maximum": 99}, "b": {"enum": ["x", "yy"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
GRAMMARS: dict[str, dict[str, Any]] = {
    "schema": {"json": SCHEMA},
    "regex": {"regex": "(ab|bca){3,9}"},
    "choice": {"choice": ["hello", "help me", "helpers", "world"]},
    "grammar": {"grammar": 'start: "x" (A | B)+ "y"\nA: "ab"\nB: /[0-9]{2}/'},
    "object": {"json_object": True},
}
LETTERS: dict[str, dict[str, Any]] = {"letters": {"regex": "[ab]{9,20}"}}
PENALTIES = {"repetition_penalty": 1.2, "presence_penalty": 0.4, "frequency_penalty": 0.2}
ILLEGAL = list(b"```json\n")
NGRAM = SpeculativeConfig(
    num_speculative_tokens=7,
    prompt_lookup_min=1,
    prompt_lookup_max=3,
    enable_adaptive_verification=False,  # or how long steps take decides whether there are guesses
)


@dataclass(frozen=True)
class Asked:
    """A request of these tests.

    Attributes:
        given: Arguments of `SamplingParams`.
        grammar: A key of GRAMMARS.
    """

    prompt: bytes
    given: dict[str, Any] = field(default_factory=dict)
    grammar: str | None = None

    def params(self) -> SamplingParams:
        outputs = None
        if self.grammar is not None:
            outputs = StructuredOutputsParams(**(GRAMMARS | LETTERS)[self.grammar])
        given = {"max_tokens": 40, "temperature": 1.0, "logprobs": 1} | self.given
        return SamplingParams(**given, structured_outputs=outputs)


def constrained() -> list[Asked]:
    """Requests that fill a batch, of each kind of grammar, every other one with penalties."""
    found = []
    for i in range(MAX_SEQS):
        kind = list(GRAMMARS)[i % len(GRAMMARS)]
        given = {"seed": i} | (PENALTIES if i % 2 else {})
        found.append(Asked(b"Say it %d times over" % i, given, kind))
    return found


def add(engine: LLMEngine, name: str, one: Asked) -> None:
    engine.add_request(name, {"prompt_token_ids": list(one.prompt)}, one.params())


def run(engine: LLMEngine, asked: Sequence[Asked], at_once: int) -> list[RequestOutput]:
    """Their last outputs, of which so many run at a time."""
    found: dict[str, Any] = {}
    for first in range(0, len(asked), at_once):
        for i, one in enumerate(asked[first : first + at_once], first):
            add(engine, str(i), one)
        while engine.has_unfinished_requests():
            found |= {output.request_id: output for output in engine.step()}
    stats = engine.stats()
    assert stats.num_free_blocks == stats.num_blocks
    return [found[str(i)] for i in range(len(asked))]


def said(output: RequestOutput) -> list[Any]:
    return [
        (one.token_ids, one.text, one.logprobs, one.finish_reason, one.stop_reason)
        for one in output.outputs
    ]


def alone(asked: Sequence[Asked]) -> list[list[Any]]:
    return [said(one) for one in run(speaking_engine(), asked, 1)]


def texts_of(asked: Sequence[Asked], answers: Sequence[list[Any]]) -> list[list[int]]:
    return [
        [*one.prompt, *ids] for one, said in zip(asked, answers, strict=True) for ids, *_ in said
    ]


CONSTRAINED = constrained()


@functools.cache
def constrained_alone() -> list[list[Any]]:
    return alone(CONSTRAINED)


DRAFTERS: dict[str, Callable[[Guess], Guess]] = {
    "right": lambda right: right,
    "illegal at once": lambda right: followed_by(right, ILLEGAL, 1),
    "illegal in the middle": lambda right: followed_by(right, ILLEGAL, 4),
    "beyond the end": lambda right: lambda tokens: [*right(tokens), EOS, *b"}}", EOS],
    "unruly": lambda right: unruly(right, 3, VOCAB),
}


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_grammars_hold_with_any_number_of_requests_at_once(drafter: str, ahead: bool) -> None:
    """vllm#49694, #52620: grammar-illegal guesses were accepted, since scheduler and runner each
    had a view of them; most requests with penalties failed, and answers grew shorter the more of
    them ran."""
    expected = constrained_alone()
    right = perfect(texts_of(CONSTRAINED, expected))
    engine = speaking_engine(speculation(DRAFTERS[drafter](right)), ahead=ahead)
    for at_once in (1, 5, MAX_SEQS):
        found = run(engine, CONSTRAINED, at_once)
        assert [said(one) for one in found] == expected, at_once
    assert engine.stats().num_steps > 0


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ngram", "suffix"])
def test_grammars_hold_with_the_drafters_that_users_have(method: str) -> None:
    """vllm#49694, #52620: it was the n-gram drafter there. What it guesses out of a prompt that
    shows a form is legal for a while, and then is not."""
    asked = [
        Asked(
            b'{"a": 12, "b": "x"} ```json\n{"a": 1, "b": "no"} ab bca hello help', {"seed": i}, one
        )
        for i, one in enumerate([*GRAMMARS] * 2)
    ]
    config = SpeculativeConfig(
        method=method,
        num_speculative_tokens=7,
        prompt_lookup_min=1,
        prompt_lookup_max=2,
        enable_adaptive_verification=False,
    )
    engine, expected = speaking_engine(config), alone(asked)
    for at_once in (1, len(asked)):
        found = run(engine, asked, at_once)
        assert [said(one) for one in found] == expected
        assert sum(one.metrics.num_draft_tokens for one in found) > 50


TYPES: dict[str, Callable[[list[int]], Any]] = {
    "an array": lambda guesses: np.array(guesses, np.int32),
    "an array of 64 bits": lambda guesses: np.array(guesses, np.int64),
    "numbers of arrays": lambda guesses: [np.int32(one) for one in guesses],
    "a tuple": tuple,
    "nothing": lambda guesses: None,
    "words": lambda guesses: ["x" for _ in guesses],
    "a number": lambda guesses: 5,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", TYPES)
def test_no_kind_of_guess_ends_the_engine(kind: str) -> None:
    """vllm#44006, #51660, sglang#24283, #9187: a matcher that was fed what it could not take, or
    was not rolled back, ended the scheduler and every request with it."""
    asked = [*CONSTRAINED[:5], Asked(b"free", {"seed": 1}), Asked(b"freely", {"temperature": 0.0})]
    expected = alone(asked)
    right = perfect(texts_of(asked, expected))

    def guess(tokens: list[int]) -> Any:
        return TYPES[kind]([*right(tokens)[:2], *ILLEGAL])

    engine = speaking_engine(speculation(guess))
    assert [said(one) for one in run(engine, asked, len(asked))] == expected


def ends() -> list[Asked]:
    """Requests that end in a number of ways, each with all of its end ahead."""
    ways: list[dict[str, Any]] = [
        {}, {"stop": ["b"]}, {"stop": ["y", "x"], "include_stop_str_in_output": True},
        {"stop_token_ids": [ord("a"), ord("8"), ord("}")]}, {"max_tokens": 5}, {"max_tokens": 6},
        {"stop": ["bc", "el", '"b"', "01"]}, {"max_tokens": 1},
    ]  # fmt: skip
    return [
        Asked(b"End %d" % i, {"seed": 10 * i} | way, grammar)
        for i, way in enumerate(ways)
        for grammar in ("schema", "regex", "choice", "grammar")
    ]


@pytest.mark.slow
def test_a_grammar_or_a_stop_that_ends_inside_a_draft_is_noticed() -> None:
    """sglang PR#21723, PR#31738, openvino.genai#4081: a grammar ended in the middle of accepted
    guesses, and the request went on behind it or its matcher failed; a stop before the end of
    the grammar was overlooked. The guesses here are those of the grammar's longest answer."""
    asked = ends()
    expected = alone(asked)
    free = [Asked(one.prompt, {"seed": one.given["seed"]}, one.grammar) for one in asked]
    beyond = texts_of(free, alone(free))
    for guess in (perfect(texts_of(asked, expected)), perfect(beyond)):
        engine = speaking_engine(
            speculation(lambda tokens, guess=guess: [*guess(tokens), EOS, EOS, *b"}ab"], most=7)
        )
        for at_once in (1, MAX_SEQS):
            found = run(engine, asked, at_once)
            assert [said(one) for one in found] == expected
    reasons = {one[0][3] for one in expected}
    assert reasons == {"stop", "length"}


@pytest.mark.slow
def test_greedy_answers_with_ngrams_are_those_without() -> None:
    """vllm#41758: with n-grams each of 20 greedy answers was another one, since steps of k + 1
    tokens ran other kernels."""
    words = b"the cat sat on the mat and the dog sat on the rug "
    asked = [Asked(words[i:] + words[: 2 * i], {"temperature": 0.0}) for i in range(20)]
    expected = alone(asked)
    engine = speaking_engine(NGRAM)
    for at_once in (1, 16):
        found = run(engine, asked, at_once)
        assert [said(one) for one in found] == expected
        assert sum(one.metrics.num_accepted_tokens for one in found) > 0


@pytest.mark.parametrize("kind", ["right", "wrong"])
@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.slow
def test_prefix_hits_are_those_without_guesses(kind: str, ahead: bool) -> None:
    """vllm#54360, PR#18668: with guesses a prompt hit a block less of the prefix cache, or none;
    guesses were counted among the tokens that a block is cached for. Conversations of four turns
    whose ends lie before, at and behind a block's border."""
    for length in range(BLOCK - 1, BLOCK + 2):
        plain = conversation(speaking_engine(ahead=ahead), length)
        texts = [[*prompt, *answer] for prompt, answer, _ in plain]
        right = perfect(texts)
        guess = right if kind == "right" else lambda tokens: [7] * 5
        found = conversation(speaking_engine(speculation(guess), ahead=ahead), length)
        assert found == plain
        hits = [cached for *_, cached in plain]
        assert hits[0] == 0 and all(hit > 0 for hit in hits[1:])


def conversation(engine: LLMEngine, length: int) -> list[tuple[bytes, bytes, int]]:
    """Each turn's prompt, answer and cached tokens; and the last prompt once more."""
    text, found = bytes(range(65, 65 + length + BLOCK)), []
    for turn in (0, 1, 2, 3, 3):
        given = {"max_tokens": length + turn, "seed": turn, "ignore_eos": True, "logprobs": None}
        given["allowed_token_ids"] = [*range(48, 123)]
        [output] = run(engine, [Asked(text, given)], 1)
        answer = bytes(output.outputs[0].token_ids)
        found.append((text, answer, output.num_cached_tokens))
        if turn < 3:
            text += answer + b"?"
    return found


@pytest.mark.parametrize("logprobs", [0, 1, 5])
@pytest.mark.slow
def test_log_probabilities_are_told_of_accepted_tokens(logprobs: int) -> None:
    """vllm#17876: with n-grams all log-probabilities were 0.0."""
    given = {"temperature": 0.0, "repetition_penalty": 1.1, "logprobs": logprobs, "max_tokens": 30}
    asked = [Asked(b"again and again and again", given)]
    [expected] = alone(asked)
    for config in (NGRAM, speculation(perfect(texts_of(asked, [expected])))):
        [output] = run(speaking_engine(config), asked, 1)
        assert said(output) == expected and output.metrics.num_draft_tokens > 0
        assert config is NGRAM or output.metrics.num_accepted_tokens > 15
        [one] = output.outputs
        entries: Any = one.logprobs
        assert len(entries) == len(one.token_ids)
        assert all(
            entry[token].logprob < 0 and len(entry) >= max(1, logprobs)
            for token, entry in zip(one.token_ids, entries, strict=True)
        )
        assert one.cumulative_logprob == pytest.approx(
            sum(entry[token].logprob for token, entry in zip(one.token_ids, entries, strict=True))
        )


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("kind", ["right", "wrong", "ngram"])
def test_aborts_among_shared_prefixes_change_no_other_request(kind: str, ahead: bool) -> None:
    """sglang#23392: two requests were cancelled and sent again among others of the same prefix,
    and an unrelated request's answer changed, in 15 of 15 runs of the deterministic mode."""
    prefix = bytes(range(32, 96)) * 2  # 128 tokens
    given: dict[str, Any] = {"temperature": 0.0, "max_tokens": 16, "ignore_eos": True}
    shared = [Asked(prefix + b"%d" % i, given) for i in range(4)]
    others = [Asked(b"unrelated %d, and alone" % i, given) for i in range(4)]
    asked = [*shared, *others]
    expected = alone(asked)
    right = perfect(texts_of(asked, expected))
    configs = {
        "right": speculation(right), "wrong": speculation(lambda tokens: [7] * 5), "ngram": NGRAM,
    }  # fmt: skip
    rng = np.random.default_rng(0)
    engine = speaking_engine(configs[kind], ahead=ahead, num_blocks=40)
    preempted = 0
    for trial in range(15):
        waits = rng.integers(0, 6, 4)
        found = with_aborts(engine, asked, waits.tolist())
        assert [said(one) for one in found] == expected, trial
        stats = engine.stats()
        assert stats.num_free_blocks == stats.num_blocks
        preempted = stats.num_recomputed
    assert kind == "right" or preempted > 0


def with_aborts(
    engine: LLMEngine, asked: Sequence[Asked], waits: Sequence[int]
) -> list[RequestOutput]:
    """Runs all; of the first four one each is aborted after so many steps, and sent again."""
    found: dict[str, Any] = {}
    for i, one in enumerate(asked):
        add(engine, str(i), one)
    step = 0
    while engine.has_unfinished_requests():
        found |= {output.request_id: output for output in engine.step()}
        for i, wait in enumerate(waits):
            if step == wait:
                engine.abort_request(str(i))
                add(engine, str(i), asked[i])
        step += 1
    return [found[str(i)] for i in range(len(asked))]


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 2, 4])
def test_a_guess_that_is_rejected_last_leaves_no_token_too_many(most: int) -> None:
    """openvino.genai#4190: where the last guess was wrong a token too many counted as computed:
    with sampling, a crash of the prefix cache, or a word dropped and its follower kept."""
    asked = [Asked(b"Sample %d" % i, {"seed": i, "temperature": 1.3}) for i in range(8)]
    expected = alone(asked)
    right = perfect(texts_of(asked, expected))

    def guess(tokens: list[int]) -> list[int]:
        """The last one is wrong, always."""
        known = right(tokens)[:most]
        return [*known[:-1], (known[-1] + 1) % VOCAB] if known else [7]

    for num_right in (guess, lambda tokens: guess(tokens)[-1:]):
        engine = speaking_engine(speculation(num_right, most=most))
        for at_once in (1, 8):
            found = run(engine, asked, at_once)
            assert [said(one) for one in found] == expected


UNSET: dict[str, dict[str, Any]] = {
    "top_k": {"top_k": 50}, "top_p": {"top_p": 0.9}, "min_p": {"min_p": 0.01}, "nothing": {},
}  # fmt: skip


@pytest.mark.parametrize("field_", UNSET)
@pytest.mark.slow
def test_a_temperature_that_is_not_given_is_one(field_: str) -> None:
    """TensorRT-LLM PR#19390: with guesses a request without a temperature, but with `top_k`, was
    drawn at 1e-5: greedily. vllm#40149: draws must follow the model, whatever was guessed."""
    seeds = range(8)
    asked = [Asked(b"Draw", UNSET[field_] | {"seed": i, "temperature": None}) for i in seeds]
    asked = [
        Asked(one.prompt, {k: v for k, v in one.given.items() if v is not None}) for one in asked
    ]
    expected = alone(asked)
    right = perfect(texts_of(asked, expected))
    assert len({tuple(one[0][0]) for one in expected}) == len(seeds), "they are drawn"
    for config in (speculation(right), NGRAM):
        assert [said(one) for one in run(speaking_engine(config), asked, 8)] == expected


@pytest.mark.parametrize("name", PENALTIES)
def test_each_penalty_counts_tokens_within_guesses(name: str) -> None:
    """tt-metal PR#55548: with guesses the repetition penalty was dropped. A token that was guessed
    earlier in the same step is repeated, too."""
    given = {"temperature": 0.0, "max_tokens": 30}
    asked, plain = Asked(b"abcabcabc", given | {name: 1.9}), Asked(b"abcabcabc", given)
    expected, without = alone([asked]), alone([plain])
    assert expected != without
    texts = texts_of([asked], expected), texts_of([plain], without)
    for config in (NGRAM, *(speculation(perfect(one)) for one in texts)):
        [output] = run(speaking_engine(config), [asked], 1)
        assert said(output) == expected[0]


@pytest.mark.slow
def test_a_request_without_a_token_left_ends_as_it_does_without_guesses() -> None:
    """vllm#49694: what was drawn where a grammar allowed nothing was kept. Here bad words leave
    no token behind a guess that is right: the request fails there, and no earlier or later."""
    bad = {"bad_words": ["ab", "baa"], "logprobs": None}
    asked = [Asked(b"Only %d" % i, bad | {"seed": i}, "letters") for i in range(8)]
    expected = alone(asked)
    assert {one[0][3] for one in expected} == {"abort", "stop"}
    right = perfect(texts_of(asked, expected))
    for more in (b"", b"aa", b"bb"):
        engine = speaking_engine(speculation(lambda tokens, more=more: [*right(tokens), *more]))
        for at_once in (1, len(asked)):
            found = run(engine, asked, at_once)
            assert [said(one) for one in found] == expected
