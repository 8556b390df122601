"""I53: guesses beside each option of a request, and beside each pair: nothing changes.

The table generates the pairs. What is right is the run without guesses; the device is a stub whose
logits tell what its cache holds, so that a wrong block or position shows in the tokens.
"""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from jax_engine import LLMEngine, RequestOutputKind, SamplingParams, StructuredOutputsParams
from jax_engine.config.speculative_config import SpeculativeConfig
from jax_engine.engine.requests.masks import ConstraintBuilder
from jax_engine.engine.requests.thinking_budget import MarkerTokens
from jax_engine.outputs import CompletionOutput
from tests.support.builders import small_engine
from tests.support.draft_models import draft_config
from tests.support.drafters import mistaken, perfect, speculation
from tests.support.strategies import EOS, VOCABULARY

PROMPT = [0, 1, 1, 0, 0, 1, 0, 1]
PLAIN: dict[str, Any] = {"max_tokens": 24, "temperature": 1.5, "seed": 7, "ignore_eos": True}


def shout(output: Any, logits: Any) -> Any:
    """Prefers another token behind each second one."""
    logits[len(output) % 2] += 1
    return logits


TAGS = {"format": {"type": "triggered_tags", "triggers": ["AA"], "tags": [
    {"begin": "AAB", "content": {"type": "regex", "pattern": "(BA){1,3}"}, "end": "BBB"},
]}}  # fmt: skip
OPTIONS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "n": {"n": 3},
    "best_of": {"best_of": 3},
    "penalties": {
        "repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.2,
    },
    "bias": {"logit_bias": {0: 1.5}},
    "filters": {"top_k": 2, "top_p": 0.9, "min_p": 0.05, "top_n_sigma": 2.0},
    "end": {"ignore_eos": False},
    "min_tokens": {"min_tokens": 5, "ignore_eos": False},
    "stop token": {"stop_token_ids": [EOS]},
    "stop": {"stop": ["BBA"]},
    "stop, told": {"stop": ["AAB"], "include_stop_str_in_output": True},
    "length": {"max_tokens": 3},
    "logprobs": {"logprobs": 2},
    "logprobs of all": {"logprobs": -1},
    "logprobs of some": {"logprob_token_ids": [0, 2]},
    "prompt_logprobs": {"prompt_logprobs": 1},
    "allowed": {"allowed_token_ids": [0, 1]},
    "bad words": {"bad_words": ["AA", "BBB"]},
    "guided": {
        "structured_outputs": StructuredOutputsParams(regex="(AB|BBA){2,9}"), "ignore_eos": False,
    },
    "tags": {
        "structured_outputs": StructuredOutputsParams(structural_tag=TAGS), "ignore_eos": False,
    },
    "processor": {"logits_processors": [shout]},
    "trace": {"trace_decode_token_ids": [0, 1, 1, 0]},
    "special": {"skip_special_tokens": False, "ignore_eos": False},
    "deltas": {"output_kind": RequestOutputKind.DELTA},
    "the end alone": {"output_kind": RequestOutputKind.FINAL_ONLY},
    "one guess": {"num_speculative_tokens": 1},
    "no guess": {"num_speculative_tokens": 0},
    "thinking": {"thinking_token_budget": 4},
    "prediction": {"prediction": [0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 0, 0, 1]},
}  # fmt: skip
MARKERS = MarkerTokens(begins=((1,),), ends=((0, 0),), close=(0, 0), inside=True)
type Said = dict[int, list[Any]]


@pytest.fixture(autouse=True)
def _reasoning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model reasons up to AA."""
    monkeypatch.setattr(ConstraintBuilder, "_marker_tokens", MARKERS)


def params_of(pair: tuple[str, str]) -> SamplingParams | None:
    """None for options that contradict each other."""
    one, other = (OPTIONS[name] for name in pair)
    fields = PLAIN | one | other
    fields.pop("prediction", None)
    try:
        return SamplingParams(**fields)
    except ValueError:
        return None


def prompt_of(pair: tuple[str, str]) -> dict[str, Any]:
    """A prediction is the one option that is not of the parameters."""
    return {"prompt_token_ids": PROMPT} | (OPTIONS["prediction"] if "prediction" in pair else {})


def run(engine: LLMEngine, params: SamplingParams, prompt: Any = PROMPT) -> Said | str:
    """What each of the request's samples said, deltas put together; or why it was refused."""
    said: Said = {}
    try:
        engine.add_request("r", prompt, params)
    except ValueError as error:
        return str(error)
    deltas = params.output_kind is RequestOutputKind.DELTA
    while engine.has_unfinished_requests():
        for output in engine.step():
            if not deltas:
                said = {}
            for one in output.outputs:
                _join(said, one)
            said[-1] = [output.prompt_logprobs, output.num_cached_tokens]
    return said


def _join(said: Said, one: CompletionOutput) -> None:
    token_ids, text, logprobs, *_ = said.get(one.index, [[], "", []])
    said[one.index] = [
        [*token_ids, *one.token_ids],
        text + one.text,
        [*logprobs, *(one.logprobs or [])],
        one.cumulative_logprob,
        one.finish_reason,
        one.stop_reason,
    ]


def right_guesses(said: Said) -> Any:
    return perfect([[*PROMPT, *tokens[0]] for index, tokens in said.items() if index >= 0])


KINDS: dict[str, Callable[[Said], SpeculativeConfig]] = {
    "right": lambda said: speculation(right_guesses(said)),
    "half right": lambda said: speculation(mistaken(right_guesses(said), 3, VOCABULARY, 0.3)),
    "ngram": lambda said: SpeculativeConfig(
        num_speculative_tokens=7,
        prompt_lookup_min=1,
        prompt_lookup_max=3,
        enable_adaptive_verification=False,
    ),
    "suffix": lambda said: SpeculativeConfig(method="suffix", enable_adaptive_verification=False),
    "draft model": lambda said: draft_config(),
    "adaptive": lambda said: SpeculativeConfig(prompt_lookup_min=1, prompt_lookup_max=2),
}


def beside(pair: tuple[str, str], kind: str) -> tuple[int, int]:
    """Asserts that guesses change nothing; returns the steps without and with guesses.

    Also in an engine that served the same before, whose blocks are cached.
    """
    params, prompt = params_of(pair), prompt_of(pair)
    if params is None:
        return 0, 0
    plain = small_engine(ahead=True)
    said = run(plain, params)
    config = KINDS[kind]({} if isinstance(said, str) else said)
    engine = small_engine(ahead=True, speculation=config)
    if kind == "adaptive":  # it goes by the times of steps: here all take as long
        ticks = itertools.count()
        engine.clock = lambda: next(ticks) * 1e-6
    for told in (said, run(plain, params)):  # the second time the prompt is cached
        assert run(engine, params, prompt) == told, (pair, kind)
    stats = engine.stats()
    assert stats.num_free_blocks == stats.num_blocks
    return plain.stats().num_steps, stats.num_steps


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_guesses_change_nothing_beside_an_option(kind: str) -> None:
    steps = [beside((name, name), kind) for name in OPTIONS]
    assert sum(with_ for _, with_ in steps) < sum(without for without, _ in steps)
    if kind == "right":  # of `best_of` one sample is not told, so nobody knows how it goes on
        same = [n for n, (without, with_) in zip(OPTIONS, steps, strict=True) if with_ == without]
        assert same == ["best_of", "processor", "trace", "no guess"]


@pytest.mark.slow
def test_guesses_change_nothing_beside_two_options() -> None:
    """Each pair with one of the drafters, in turns."""
    kinds = itertools.cycle(KINDS)
    pairs = itertools.combinations(OPTIONS, 2)
    steps = [beside(pair, kind) for pair, kind in zip(pairs, kinds, strict=False)]
    assert sum(without > 0 for without, _ in steps) > 300
    assert sum(with_ for _, with_ in steps) < 0.8 * sum(without for without, _ in steps)


def test_a_request_without_guesses_has_none() -> None:
    def guess(tokens: list[int]) -> list[int]:
        raise AssertionError("nobody may ask")

    engine = small_engine(speculation=speculation(guess))
    said = run(engine, SamplingParams(**PLAIN, num_speculative_tokens=0))
    assert said == run(small_engine(), SamplingParams(**PLAIN))
