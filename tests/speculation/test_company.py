"""Guesses in a company of all kinds of requests, under each setting of the scheduler, and while
something happens: each answer is that of its request alone without guesses, to the bit."""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from jax_engine import LLMEngine, PoolingParams, SamplingParams, StructuredOutputsParams
from jax_engine.config.speculative_config import SpeculativeConfig
from jax_engine.outputs import RequestOutput
from tests.support.drafters import Guess, perfect, speculation, unruly
from tests.support.raise_at import Injected
from tests.support.speaking import EOS, VOCAB, followed_by, speaking_engine

pytestmark = pytest.mark.slow  # half a minute for the answers alone

SCHEMA = {"json": {"type": "array", "items": {"enum": [1, 22, "x"]}, "minItems": 2, "maxItems": 5}}
REGEX, CHOICE = {"regex": "(ab|bca){3,9}"}, {"choice": ["hello", "help me", "helpers"]}
LETTERS: dict[str, Any] = {"allowed_token_ids": [*range(97, 123), EOS]}


def shout(output: Any, logits: Any) -> Any:
    """Prefers another token behind each second one."""
    logits[97 + len(output) % 2] += 3
    return logits


def guided(**one: Any) -> dict[str, Any]:
    return {"structured_outputs": StructuredOutputsParams(**one)}


KINDS: dict[str, dict[str, Any]] = {
    "schema": guided(**SCHEMA),
    "samples of a schema": guided(**SCHEMA) | {"n": 3},
    "regex, penalties": guided(**REGEX) | {"repetition_penalty": 1.3, "frequency_penalty": 0.4},
    "choice": guided(**CHOICE) | {"logprobs": 3},
    "stop in a regex": guided(**REGEX) | {"stop": ["aba"], "include_stop_str_in_output": True},
    "bad words": LETTERS | {"bad_words": ["ab", "xyz", "q"], "min_tokens": 9},
    "the end is forbidden": LETTERS | {"min_tokens": 20, "logit_bias": {EOS: 4}},
    "stop tokens": LETTERS | {"stop_token_ids": [101, 105], "min_tokens": 3},
    "prompt": {"prompt_logprobs": 1, "logprobs": 0},
    "best of": LETTERS | {"best_of": 4, "logprobs": 1},
    "samples in parts": LETTERS | {"n": 6},
    "beams": {"use_beam_search": True, "n": 3, "temperature": 0.0, "num_speculative_tokens": 0},
    "processor": LETTERS | {"logits_processors": [shout]},
    "some log-probabilities": {"logprob_token_ids": [97, 98, EOS]},
    "no text": {"detokenize": False, "top_k": 5},
    "one guess": LETTERS | {"num_speculative_tokens": 1, "temperature": 0.0},
}


def params_of(name: str) -> SamplingParams:
    seed = list(KINDS).index(name)
    return SamplingParams(**({"max_tokens": 24, "seed": seed, "temperature": 1.0} | KINDS[name]))


def prompt_of(name: str) -> list[int]:
    return list(f"A prompt that some have in common. {name}, {name}".encode())


def run(engine: LLMEngine, names: Any, between: Callable[[int], Any] = lambda step: None) -> Any:
    """What each said; `between` two steps something may happen."""
    found: dict[str, RequestOutput] = {}
    for i, name in enumerate(names):
        priority = -i if engine.scheduler.policy == "priority" else 0
        engine.add_request(
            name, {"prompt_token_ids": prompt_of(name)}, params_of(name), priority=priority
        )
    step = 0
    while engine.has_unfinished_requests():
        found |= {output.request_id: output for output in engine.step() if output.finished}
        between(step)
        step += 1
    return {name: said(found[name]) for name in names}


def said(output: Any) -> list[Any]:
    samples = [
        (one.token_ids, one.text, one.logprobs, one.cumulative_logprob, one.finish_reason)
        for one in output.outputs
    ]
    return [samples, output.prompt_logprobs]


@functools.cache
def alone() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in KINDS:
        found |= run(speaking_engine(), [name])
    return found


def right() -> Guess:
    return perfect(
        [[*prompt_of(name), *sample[0]] for name, one in alone().items() for sample in one[0]]
    )


CONFIGS: dict[str, Callable[[], SpeculativeConfig]] = {
    "right": lambda: speculation(right()),
    "wrong in between": lambda: speculation(followed_by(right(), list(b'"a')), most=9),
    "ends": lambda: speculation(lambda tokens: [*right()(tokens)[:1], EOS, EOS]),
    "unruly": lambda: speculation(unruly(right(), 1, VOCAB)),
    "ngram": lambda: SpeculativeConfig(
        prompt_lookup_min=1, prompt_lookup_max=2, enable_adaptive_verification=False
    ),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "one by one": {"ahead": False},
    "few blocks": {"num_blocks": 36},
    "few blocks, swapped": {"num_blocks": 36, "num_cpu_blocks": 64, "preemption_mode": "swap"},
    "small steps": {"max_num_batched_tokens": 17},
    "few guesses a step": {"max_draft_tokens": 5},
    "pieces of prompts": {"long_prefill_token_threshold": 3},
    "whole prompts": {"enable_chunked_prefill": False},
    "few at once": {"max_num_seqs": 4},
    "priorities": {"policy": "priority", "num_blocks": 36},
}


@pytest.mark.slow
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("config", CONFIGS)
def test_all_kinds_together(config: str, settings: str) -> None:
    engine = speaking_engine(CONFIGS[config](), **SETTINGS[settings])
    for _ in range(2):  # the second time their prompts are cached
        assert run(engine, KINDS) == alone()
    drafts, accepted = counted(engine)
    assert accepted > (20 if config == "right" else 0)
    assert drafts > accepted or config == "right"
    stats = engine.stats()
    assert stats.num_free_blocks == stats.num_blocks
    if "num_blocks" in SETTINGS[settings]:
        assert stats.num_recomputed + stats.num_swapped_out > 0


def counted(engine: LLMEngine) -> tuple[int, int]:
    """The engine's guesses, and those that were right."""
    names = ("vllm:spec_decode_num_draft_tokens", "vllm:spec_decode_num_accepted_tokens")
    found: dict[str, Any] = {one.name: one for one in engine.get_metrics()}
    return found[names[0]].value, found[names[1]].value


@pytest.mark.slow
def test_in_any_order() -> None:
    rng = np.random.default_rng(0)
    engine = speaking_engine(CONFIGS["wrong in between"](), num_blocks=60)
    for _ in range(4):
        names = rng.permutation(list(KINDS)).tolist()
        assert run(engine, names) == {name: alone()[name] for name in names}


def every(steps: int) -> Iterator[bool]:
    """True once in so many times, not the first time."""
    count = 0
    while True:
        count += 1
        yield count % steps == 0


@pytest.mark.parametrize("config", ["right", "wrong in between", "ngram"])
def test_blocks_are_forgotten_while_requests_run(config: str) -> None:
    """All is computed again; a step that is under way has guesses."""
    engine = speaking_engine(CONFIGS[config]())
    due = every(3)
    found = run(engine, KINDS, lambda step: next(due) and engine.reset_prefix_cache(True))
    assert found == alone()


@pytest.mark.parametrize("config", ["right", "wrong in between", "ngram"])
def test_others_end_within_guesses(config: str) -> None:
    """They are aborted or out of time between a step's plan and its end, and sent again."""
    engine, now = speaking_engine(CONFIGS[config]()), 0.0
    engine.clock = lambda: now
    due, numbers = every(2), iter(range(1000))
    gone: list[str] = []

    def between(step: int) -> None:
        nonlocal now
        now += 1.0
        if not next(due) or step > 60:
            return
        if gone:
            engine.abort_request(gone.pop())
        name = list(KINDS)[step % len(KINDS)]
        other = f"other {next(numbers)}"
        prompt = {"prompt_token_ids": prompt_of(name)}
        timeout = 3.5 if step % 4 else None
        engine.add_request(other, prompt, params_of(name), timeout=timeout)
        gone.append(other)

    found = run(engine, KINDS, between)
    assert found == alone()
    stats = engine.stats()
    assert stats.num_free_blocks == stats.num_blocks


def failing_at(count: int, collect: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Raises in its call of this number."""
    calls = itertools.count()

    def call(ticket: Any) -> Any:
        if next(calls) == count:
            raise Injected
        return collect(ticket)

    return call


@pytest.mark.parametrize("config", ["right", "unruly"])
def test_after_a_step_that_failed_all_is_as_before(config: str) -> None:
    """What ran is lost, and told so; what comes next has nothing of it."""
    engine = speaking_engine(CONFIGS[config]())
    runner = engine.worker
    for fail_at in (1, 4, 9):
        runner.collect = failing_at(fail_at, runner.collect)  # type: ignore[method-assign]
        try:
            with pytest.raises(Injected):
                run(engine, KINDS)
        finally:
            del runner.collect  # type: ignore[attr-defined]
        engine.take_lost()
        assert not engine.has_unfinished_requests()
        assert run(engine, KINDS) == alone()


def test_vectors_of_prompts_are_made_beside_guesses() -> None:
    """A pooled request has no output: it neither has guesses nor holds up those of others."""
    prompt = {"prompt_token_ids": prompt_of("beams")}
    vectors: list[Any] = []

    def embed(engine: LLMEngine, name: str) -> None:
        engine.add_request(name, prompt, PoolingParams(task="embed"))

    plain = speaking_engine()
    embed(plain, "v")
    while plain.has_unfinished_requests():
        vectors += [one.outputs.data for one in plain.step()]  # type: ignore[union-attr]
    engine = speaking_engine(CONFIGS["right"]())
    found: dict[str, Any] = {}
    for name in KINDS:
        engine.add_request(name, {"prompt_token_ids": prompt_of(name)}, params_of(name))
    step = 0
    while engine.has_unfinished_requests():
        if step < 5:
            embed(engine, f"v{step}")
        found |= {one.request_id: one for one in engine.step() if one.finished}
        step += 1
    for i in range(5):
        np.testing.assert_array_equal(found.pop(f"v{i}").outputs.data, vectors[0])
    assert {name: said(one) for name, one in found.items()} == alone()
