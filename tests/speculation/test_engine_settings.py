"""An engine's `speculative_config`, and what a request says of guesses."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from jax_engine import EngineConfig, InvalidRequestError, SamplingParams
from jax_engine.config.speculative_config import SpeculativeConfig
from jax_engine.engine.startup import build_speculator as build
from jax_engine.errors import ConfigError
from jax_engine.speculation.drafter import DraftRequest
from tests.support.builders import small_engine

SUFFIX = SpeculativeConfig(method="suffix")


@pytest.mark.parametrize(
    "given, made",
    [
        (None, None),
        ({}, None),
        ({"method": "suffix"}, SUFFIX),
        (
            {"method": "suffix", "num_speculative_tokens": None, "draft_sample_method": "greedy"},
            SUFFIX,
        ),
        ({"num_speculative_tokens": 3}, SpeculativeConfig(num_speculative_tokens=3)),
        (SUFFIX, SUFFIX),
    ],
)
def test_it_is_a_mapping_or_an_object_or_nothing(given: Any, made: Any) -> None:
    for config in (
        EngineConfig(model="stub", speculative_config=given),
        EngineConfig.from_settings(model="stub", speculative_config=given),
    ):
        assert config.speculative_config == made


@pytest.mark.parametrize("given", ["suffix", 3, [SUFFIX], True])
def test_it_is_nothing_else(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"^speculative_config must be SpeculativeConfig or None"):
        EngineConfig(model="stub", speculative_config=given)


def test_errors_name_the_key() -> None:
    with pytest.raises(ConfigError, match=r"^speculative_config: prompt_lookup_min must be at"):
        EngineConfig(model="stub", speculative_config={"prompt_lookup_min": 0})  # type: ignore[arg-type]


@pytest.mark.parametrize("scheduling", ["sosp", "sosp-mixed"])
def test_only_unified_scheduling_has_room_for_guesses(scheduling: Any) -> None:
    """It is refused before a model is loaded; the scheduler itself refuses it, too."""
    with pytest.raises(
        ConfigError, match=rf"^speculative_config needs scheduling='unified', .*'{scheduling}'"
    ):
        EngineConfig(model="stub", scheduling=scheduling, speculative_config=SUFFIX)
    EngineConfig(model="stub", scheduling=scheduling, speculative_config={})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^speculative_config needs scheduling='unified'"):
        small_engine(
            scheduling=scheduling,
            enable_chunked_prefill=False,
            enable_prefix_caching=False,
            speculation=SUFFIX,
        )


@pytest.mark.parametrize(
    "given, why",
    [(-1, "at least 0, got -1"), (1.5, "an integer"), (True, "an integer"), ("3", "an integer")],
)
def test_a_request_says_how_many(given: Any, why: str) -> None:
    with pytest.raises(InvalidRequestError, match=rf"^num_speculative_tokens must be {why}"):
        SamplingParams(num_speculative_tokens=given)
    for fine in (None, 0, 1, 63, 10**6, np.int32(3)):
        assert SamplingParams(num_speculative_tokens=fine).num_speculative_tokens == fine


class Watched:
    """A drafter that goes on with token 1, and notes how many were wanted, and whom it knows."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.known: set[int] = set()
        self.most = 0

    def propose(self, asked: Sequence[DraftRequest]) -> list[list[int]]:
        self.counts += [one.most for one in asked]
        self.known |= {one.seq_id for one in asked}
        self.most = max(self.most, len(self.known))
        return [[1] * one.most for one in asked]

    def forget(self, seq_ids: set[int]) -> None:
        self.known -= seq_ids


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    one = Watched()
    monkeypatch.setattr(build, "_drafter", lambda config, parts: one)
    return one


ALWAYS = SpeculativeConfig(num_speculative_tokens=4, enable_adaptive_verification=False)
PLAIN: dict[str, Any] = {"max_tokens": 20, "ignore_eos": True, "temperature": 1.5, "seed": 3}


@pytest.mark.parametrize("asked, counts", [(None, {4}), (0, set()), (2, {2}), (4, {4}), (60, {4})])
def test_a_request_gets_at_most_what_it_says(
    watched: Watched, asked: int | None, counts: set[int]
) -> None:
    engine = small_engine(speculation=ALWAYS)
    params = SamplingParams(**PLAIN, num_speculative_tokens=asked)
    engine.add_request("r", {"prompt_token_ids": [0, 1]}, params)
    while engine.has_unfinished_requests():
        engine.step()
    assert set(watched.counts) == counts


@pytest.mark.parametrize("asked", [None, 3])
def test_beams_are_refused_by_name(asked: int | None) -> None:
    engine = small_engine(speculation=ALWAYS)
    beams = {"use_beam_search": True, "best_of": 2, "temperature": 0.0, "max_tokens": 4}
    prompt = {"prompt_token_ids": [0, 1]}
    with pytest.raises(
        InvalidRequestError,
        match=rf"^num_speculative_tokens must be 0 with use_beam_search, got {asked} .* has 4\)",
    ):
        engine.add_request("r", prompt, SamplingParams(**beams, num_speculative_tokens=asked))
    assert not engine.has_unfinished_requests()
    engine.add_request("r", prompt, SamplingParams(**beams, num_speculative_tokens=0))
    plain = small_engine()
    plain.add_request("r", prompt, SamplingParams(**beams, num_speculative_tokens=asked))


@pytest.mark.slow
def test_a_thousand_requests_leave_nothing(watched: Watched) -> None:
    """Four at a time; some end, some are aborted."""
    engine = small_engine(speculation=ALWAYS, ahead=True)
    for i in range(1000):
        params = SamplingParams(max_tokens=4, ignore_eos=True, seed=i)
        engine.add_request(str(i), {"prompt_token_ids": [i % 3, 1]}, params)
        while len(engine.scheduler.seq_ids) >= 4:
            engine.step()
        if i % 7 == 0:
            engine.abort_request(str(i))
    while engine.has_unfinished_requests():
        engine.step()
    assert len(watched.counts) > 1000 and watched.most <= 8
    engine.add_request("last", {"prompt_token_ids": [0]}, SamplingParams(max_tokens=4))
    engine.step()
    assert len(watched.known) <= 1


@pytest.mark.parametrize("method", ["ngram", "suffix"])
def test_the_drafter_is_the_one_of_the_method(method: str) -> None:
    """It guesses by its settings: a text of one token goes on at once, in fewer steps."""
    config = SpeculativeConfig(
        method=method,
        prompt_lookup_min=2,
        suffix_decoding_max_tree_depth=2,
        suffix_decoding_max_spec_factor=2.0,
        enable_adaptive_verification=False,
    )
    params = SamplingParams(max_tokens=20, ignore_eos=True, allowed_token_ids=[1])
    steps = {}
    for name, one in (("plain", None), (method, config)):
        engine = small_engine(speculation=one)
        engine.add_request("r", {"prompt_token_ids": [1, 1, 1, 1, 1, 1, 1, 1]}, params)
        while engine.has_unfinished_requests():
            (output,) = engine.step()
        assert output.outputs[0].token_ids == [1] * 20
        steps[name] = engine.stats().num_steps
    # The most recent place has 1 token behind it; of 10 places behind 2 most have 4
    assert steps["plain"] == 20 and steps[method] == {"ngram": 4, "suffix": 5}[method]
