"""`thinking_token_budget`: what is forced and when, by hand, and what is refused."""

from collections.abc import Sequence
from typing import Any

import pytest

from jax_engine import ConfigError, EngineConfig, InvalidRequestError, SamplingParams
from jax_engine.config.reasoning_config import ReasoningConfig
from jax_engine.config.reasoning_markers import REASONING_MARKERS, ReasoningMarkers
from jax_engine.core.sequence_group import NEVER
from jax_engine.engine.requests.masks import ConstraintBuilder
from jax_engine.engine.requests.thinking_budget import (
    MAX_GAP,
    MarkerTokens,
    ThinkingBudget,
    first_complete,
)
from jax_engine.tokenization.tokenizer import Tokenizer
from tests.support.builders import letters, small_engine
from tests.support.in_process import run as run_all
from tests.support.strategies import EOS

A, B = 0, 1  # the letters of `small_engine`
ALWAYS = MarkerTokens(begins=((B,),), ends=((A, A),), close=(A, A), inside=True)
AFTER_B = MarkerTokens(begins=((B, B),), ends=((A,), (A, A)), close=(A, A))
LONG: dict[str, Any] = {"max_tokens": 20, "temperature": 1.3, "seed": 3, "ignore_eos": True}


@pytest.fixture
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConstraintBuilder, "_marker_tokens", ALWAYS)


def outputs(params: SamplingParams, prompt: list[int] | None = None, **engine: Any) -> list[Any]:
    made = small_engine(**engine)
    made.add_request("r", prompt or [B, A, B], params)
    [last] = [one for one in run_all(made) if one.finished]
    return list(last.outputs)


@pytest.mark.parametrize(
    ("markers", "budget", "prompt", "output", "token"),
    [
        (ALWAYS, 0, [B, A, B], [], A),
        (ALWAYS, 0, [B, A, B], [A], A),
        (ALWAYS, 0, [B, A, B], [A, A], None),
        (ALWAYS, 0, [A, A], [], None),  # the prompt has ended it
        (ALWAYS, 2, [B], [B], None),
        (ALWAYS, 2, [A, B], [B], None),  # the prompt has begun it, and none of it yet
        (ALWAYS, 2, [B, A, EOS], [], A),  # the prompt has spent it
        (ALWAYS, 2, [B, A, EOS, EOS, EOS], [], A),
        (ALWAYS, 2, [B, A, EOS, EOS, EOS], [A], A),
        (ALWAYS, 2, [EOS], [A, A, B, B, B], None),
        (ALWAYS, 1, [EOS], [A, B, A], A),
        (ALWAYS, 1, [EOS], [B, B], A),  # a grammar has put it off
        (ALWAYS, 1, [EOS], [B, B, A, B], A),
        (AFTER_B, 1, [A], [B, A, B, B], None),
        (AFTER_B, 1, [A], [B, EOS, B, B, EOS], A),
        (AFTER_B, 1, [B], [B], None),  # the marker begins in the prompt
        (AFTER_B, 1, [B], [B, EOS], A),
        (AFTER_B, 1, [B, B, A], [B, EOS, EOS], None),
        (AFTER_B, 1, [B], [B, A, B, B, EOS, EOS], None),  # later reasoning is free
    ],
)
def test_what_is_forced(
    markers: MarkerTokens, budget: int, prompt: list[int], output: list[int], token: int | None
) -> None:
    """The same at once, token by token, and with a part of it as guesses."""
    for known in range(len(output) + 1):
        rule = ThinkingBudget.of(markers, budget, prompt, letters())
        for count in range(known + 1):
            rule.forced(7, [*prompt, *output[:count]], [EOS, A, A])
        found = rule.forced(7, [*prompt, *output[:known]], output[known:])
        assert found == token, known
        assert len(output) >= rule.num_free or found is None


@pytest.mark.parametrize(
    ("prompt", "budget", "free"),
    [([A, A], 5, 6), ([EOS], 5, 5), ([B, A, EOS], 5, 3), ([B, A, EOS], 2, 0), ([B, A, EOS], 1, 0)],
)
def test_no_mask_is_made_before_the_budget_can_be_spent(
    prompt: list[int], budget: int, free: int
) -> None:
    """Reasoning that is not open takes a token more, which begins it."""
    assert ThinkingBudget.of(ALWAYS, budget, prompt, letters()).num_free == free


class Spaced(Tokenizer):
    """Every token is white space but A and B."""

    def __init__(self) -> None: ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        assert not skip_special_tokens and A not in token_ids
        return "".join("b" if one == B else " " for one in token_ids)


@pytest.mark.parametrize(
    ("prompt", "is_open"),
    [
        ([A], False),
        ([A, EOS], False),
        ([A] + [EOS] * MAX_GAP, False),
        ([A] + [EOS] * (MAX_GAP + 1), True),
        ([A, B], True),
        ([A, EOS, B], True),
        ([EOS], True),
        ([B], True),
    ],
)
def test_a_prompt_ends_reasoning_if_its_end_is_the_last_word(
    prompt: list[int], is_open: bool
) -> None:
    """White space may follow it; alone it ends nothing, nor do words that follow an end."""
    markers = MarkerTokens(begins=(), ends=((A,),), close=(A,), inside=True)
    begun = len(prompt) if is_open else None
    assert ThinkingBudget.of(markers, 3, prompt, Spaced()).prompt_begun == begun
    bare = ThinkingBudget.of(markers, 3, prompt, None).prompt_begun
    assert bare == (None if prompt == [A] else len(prompt)), "no token is known to be blank"


def test_markers_as_tokens() -> None:
    """With a space before them, too, where that is another token; what is forced is an end."""

    class Words(Tokenizer):
        def __init__(self) -> None: ...

        def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
            assert not add_special_tokens
            return [sum(map(ord, word)) for word in text.replace(" ", " _").split(" ")]

    found = MarkerTokens.of(ReasoningMarkers("a b", "c", or_end="d", close="e c"), Words())
    assert found.close == (101, 95 + 99) and found.ends == ((99,), (100,), (101, 194))
    assert found.begins == ((97, 95 + 98),) and not found.inside
    assert first_complete([5, 99, 101, 194], found.ends, 3) == 4
    assert all(one.close.endswith(one.end) for one in REASONING_MARKERS.values() if one.close)


@pytest.mark.usefixtures("_always")
@pytest.mark.parametrize("budget", [0, 1, 5, 19, 20, 100])
@pytest.mark.parametrize("ahead", [False, True])
def test_an_output_ends_its_reasoning(budget: int, ahead: bool) -> None:
    """It is that of a request without a budget up to there, or up to its own end."""
    plain = outputs(SamplingParams(**LONG), [B], ahead=ahead)[0].token_ids
    params = SamplingParams(thinking_token_budget=budget, **LONG)
    found = outputs(params, [B], ahead=ahead)[0].token_ids
    own = first_complete(plain, [(A, A)], 2)
    if own is not None and own <= budget:
        assert found == plain
    else:
        assert found[:budget] == plain[:budget] and len(found) == 20
        ended = first_complete([*found, A, A], [(A, A)], 2)
        assert ended in (budget + 1, budget + 2), "an A may stand there already"


@pytest.mark.usefixtures("_always")
def test_each_sample_has_the_whole_budget() -> None:
    """Also of parts that run one after another, where a request has more than fit."""
    few = outputs(SamplingParams(n=9, thinking_token_budget=3, **LONG), [B], ahead=True)
    for one in few:
        assert first_complete(one.token_ids, [(A, A)], 2) in range(2, 6)
    assert len({tuple(one.token_ids) for one in few}) > 1


@pytest.mark.usefixtures("_always")
def test_what_else_forbids_the_end_does_not_count() -> None:
    """Nor does a bias against it; and a stop string that the end completes stops."""
    beside: dict[str, Any] = {"allowed_token_ids": [B], "logit_bias": {A: -100}}
    params = SamplingParams(thinking_token_budget=4, **LONG | beside)
    assert outputs(params, [B])[0].token_ids == [B] * 4 + [A] * 2 + [B] * 14
    stopped = outputs(SamplingParams(thinking_token_budget=2, stop="BA", **LONG | beside), [B])[0]
    assert (stopped.text, stopped.stop_reason, stopped.finish_reason) == ("B", "BA", "stop")


@pytest.mark.usefixtures("_always")
def test_masks_are_made_only_where_a_token_may_be_forced() -> None:
    engine = small_engine(ahead=True)
    engine.add_request("r", [B], SamplingParams(thinking_token_budget=6, **LONG))
    group = engine.scheduler.groups["r"]
    assert (group.needs_last_token, group.num_free) == (True, 6)
    seconds: list[float] = []
    while engine.has_unfinished_requests():
        engine.step()
        seconds.append(engine.stats().guided_seconds)
    assert seconds[3] == 0.0 < seconds[-1] and group.num_free == NEVER
    assert len(set(seconds)) < len(seconds) - 8, "none behind the reasoning"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"thinking_token_budget": -2}, "thinking_token_budget must be at least -1, got -2"),
        ({"thinking_token_budget": 1.5}, "thinking_token_budget must be an integer"),
        ({"thinking_token_budget": 3, "use_beam_search": True}, "thinking_token_budget must be le"),
        ({"thinking_token_budget": 3}, "thinking_token_budget must be left out, got 3: the engine"),
    ],
)
def test_what_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        small_engine().add_request("r", [A], SamplingParams(**given))
    assert SamplingParams(thinking_token_budget=-1).thinking_token_budget is None


def test_an_end_of_reasoning_that_ends_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = MarkerTokens(begins=((B,),), ends=((EOS,),), close=(EOS,))
    monkeypatch.setattr(ConstraintBuilder, "_marker_tokens", ends)
    params = SamplingParams(thinking_token_budget=1, min_tokens=2)
    with pytest.raises(InvalidRequestError, match="min_tokens must be left out with thinking_to"):
        small_engine().add_request("r", [A], params)


THINKS = "{{ messages }}<think></think>"


@pytest.mark.parametrize(
    ("given", "template", "wanted"),
    [
        ({}, None, None),
        ({}, THINKS, REASONING_MARKERS["qwen3"]),
        ({"reasoning_parser": "none"}, THINKS, None),
        ({"reasoning_parser": "mistral"}, THINKS, REASONING_MARKERS["mistral"]),
        ({"reasoning_start_str": "(", "reasoning_end_str": ")"}, None, ReasoningMarkers("(", ")")),
        ({"reasoning_end_str": "So.</think>"}, THINKS, ReasoningMarkers(close="So.</think>")),
    ],
)
def test_markers_of_settings(given: dict[str, str], template: Any, wanted: Any) -> None:
    config = EngineConfig.from_settings(reasoning_config=given).reasoning_config
    assert (config or ReasoningConfig()).markers(template) == wanted


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"reasoning_config": {"reasoning_parser": "x"}}, "reasoning_parser must be one of deep"),
        ({"reasoning_config": {"reasoning_start": "x"}}, "reasoning_start is no key of it; did yo"),
        ({"reasoning_config": {"reasoning_end_str": 5}}, "reasoning_end_str must be a string"),
        ({"reasoning_config": {"reasoning_parser": "qwen3"}, "reasoning_parser": "glm45"},
         "reasoning_parser and reasoning_config's must be the same"),
    ],
)  # fmt: skip
def test_settings_that_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        EngineConfig.from_settings(**settings)
    with pytest.raises(ConfigError, match="reasoning_start_str must be given too"):
        ReasoningConfig(reasoning_end_str=")").markers(None)
    named = EngineConfig.from_settings(reasoning_parser="qwen3").reasoning_config
    assert named == ReasoningConfig("qwen3")
