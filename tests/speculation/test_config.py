"""The keys of `speculative_config`: what they mean if they are left out, and what they may be."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jax_engine.config.speculative_config import SpeculativeConfig
from jax_engine.errors import ConfigError


class Guesser:
    """A class, as `model` may be."""


def refused(**keys: Any) -> str:
    """Why: it must start with the name of the group, made directly or of a mapping."""
    with pytest.raises(ConfigError) as error:
        SpeculativeConfig.of(keys)
    with pytest.raises(ConfigError) as directly:
        SpeculativeConfig(**keys)
    assert str(error.value) == str(directly.value)
    group, _, why = str(error.value).partition(": ")
    assert group == "speculative_config"
    return why


def test_all_has_a_default() -> None:
    config = SpeculativeConfig()
    assert (config.method, config.model, config.num_speculative_tokens) == ("ngram", None, 7)
    assert (config.prompt_lookup_min, config.prompt_lookup_max) == (5, 5)
    assert config.suffix_decoding_max_tree_depth == 24
    assert config.suffix_decoding_max_cached_requests == 10_000
    assert config.suffix_decoding_max_spec_factor == 1.0
    assert config.suffix_decoding_min_token_prob == 0.1
    assert config.enable_adaptive_verification is True


@pytest.mark.parametrize(
    "keys, method, most",
    [
        ({"model": "ngram"}, "ngram", 7),
        ({"model": "[ngram]"}, "ngram", 7),
        ({"method": "ngram", "model": "ngram"}, "ngram", 7),
        ({"model": "suffix"}, "suffix", 31),
        ({"method": "suffix"}, "suffix", 31),
        ({"method": "suffix", "num_speculative_tokens": None}, "suffix", 31),
        ({"method": "suffix", "num_speculative_tokens": 4}, "suffix", 4),
        ({"method": "ngram", "num_speculative_tokens": None}, "ngram", 7),
        ({"model": Guesser}, "custom_class", 7),
        ({"model": "module.Class"}, "custom_class", 7),
        ({"method": "custom_class", "model": "suffix"}, "custom_class", 7),
        ({"model": "org/model"}, "draft_model", 7),
        ({"model": "./folder"}, "draft_model", 7),
        ({"model": "draft.gguf", "num_speculative_tokens": 3}, "draft_model", 3),
        ({"model": Path("folder")}, "draft_model", 7),
        ({"method": "draft_model", "model": "folder"}, "draft_model", 7),
        ({"method": "draft_model", "model": "a.b"}, "draft_model", 7),
    ],
)
def test_the_method_and_how_many_are_guessed(keys: dict[str, Any], method: str, most: int) -> None:
    for config in (SpeculativeConfig.of(keys), SpeculativeConfig(**keys)):
        assert (config.method, config.num_speculative_tokens) == (method, most)


@pytest.mark.parametrize(
    "keys, low, high",
    [
        ({"prompt_lookup_min": 2}, 2, 2),
        ({"prompt_lookup_max": 3}, 3, 3),
        ({"prompt_lookup_min": 2, "prompt_lookup_max": 9}, 2, 9),
        ({"prompt_lookup_min": 9, "prompt_lookup_max": 9}, 9, 9),
        ({"prompt_lookup_min": None, "prompt_lookup_max": None}, 5, 5),
    ],
)
def test_lengths_of_the_lookup(keys: dict[str, Any], low: int, high: int) -> None:
    config = SpeculativeConfig(**keys)
    assert (config.prompt_lookup_min, config.prompt_lookup_max) == (low, high)


COUNTS: dict[str, tuple[int, int | None]] = {
    "num_speculative_tokens": (1, 63),
    "prompt_lookup_min": (1, None),
    "prompt_lookup_max": (1, None),
    "suffix_decoding_max_tree_depth": (1, 1024),
    "suffix_decoding_max_cached_requests": (0, None),
}
SHARES: dict[str, tuple[float, float | None]] = {
    "suffix_decoding_max_spec_factor": (0, None),
    "suffix_decoding_min_token_prob": (0, 1),
}


@pytest.mark.parametrize("name", COUNTS)
def test_each_count_has_a_range(name: str) -> None:
    low, high = COUNTS[name]
    for allowed in (low, low + 1, np.int64(low), *([] if high is None else [high])):
        assert getattr(SpeculativeConfig(**{name: allowed}), name) == allowed
    limit = f"at least {low}" if high is None else f"in [{low}, {high}]"
    for wrong in (low - 1, -(2**40), *([] if high is None else [high + 1])):
        assert refused(**{name: wrong}) == f"{name} must be {limit}, got {wrong}"
    for wrong in ("3", 3.0, True, [3]):
        assert refused(**{name: wrong}).startswith(f"{name} must be an integer")


@pytest.mark.parametrize("name", SHARES)
def test_each_share_has_a_range(name: str) -> None:
    low, high = SHARES[name]
    for allowed in (low, 0.5, 1, 1.0, np.float32(0.25), *([] if high else [float("inf")])):
        assert getattr(SpeculativeConfig(**{name: allowed}), name) == allowed
    limit = f"at least {low}" if high is None else f"in [{low}, {high}]"
    nan = float("nan")
    for wrong in (-0.01, -float("inf"), nan, *([] if high is None else [1.01, float("inf")])):
        assert refused(**{name: wrong}) == f"{name} must be {limit}, got {wrong}"
    for wrong in ("0.5", True, None):
        assert refused(**{name: wrong}).startswith(f"{name} must be a number")


@pytest.mark.parametrize(
    "keys, why",
    [
        (
            {"method": "eagle"},
            "method must be one of ngram, suffix, draft_model, custom_class, got 'eagle'",
        ),
        ({"method": "eagle", "model": "a/b"}, "method must be one of"),
        ({"method": ""}, "method must be one of"),
        ({"method": 3}, "method must be a string or None, got 3"),
        ({"method": "custom_class"}, "model must be a class or its name"),
        ({"method": "draft_model"}, "model must be a directory, a GGUF file or a hub name with"),
        ({"method": "draft_model", "model": 3}, "model must be a directory"),
        ({"model": "a/b", "max_model_len": 0}, "max_model_len must be at least 1, got 0"),
        ({"model": "a/b", "max_model_len": "9"}, "max_model_len must be an integer or None"),
        ({"model": "a/b", "draft_sample_method": "gumbel"}, "draft_sample_method must be one of"),
        ({"model": "a/b", "quantization": 3}, "quantization must be a string or None"),
        ({"model": "a/b", "enforce_eager": 1}, "enforce_eager must be True or False or None"),
        (
            {"method": "suffix", "draft_sample_method": "probabilistic"},
            "draft_sample_method needs method 'draft_model', got 'probabilistic' with method 'suf",
        ),
        ({"max_model_len": 9}, "max_model_len needs method 'draft_model', got 9 with method 'ngr"),
        ({"quantization": "awq"}, "quantization needs method 'draft_model'"),
        ({"revision": "main"}, "revision needs method 'draft_model'"),
        ({"prompt_lookup_min": 4, "prompt_lookup_max": 3}, "prompt_lookup_min must be at most"),
        ({"enable_adaptive_verification": "yes"}, "enable_adaptive_verification must be True or"),
        ({"enable_adaptive_verification": 1}, "enable_adaptive_verification must be True or"),
    ],
)
def test_what_cannot_be(keys: dict[str, Any], why: str) -> None:
    assert refused(**keys).startswith(why)


def of_refused(keys: Any) -> str:
    with pytest.raises(ConfigError, match=r"^speculative_config: ") as error:
        SpeculativeConfig.of(keys)
    return str(error.value).removeprefix("speculative_config: ")


def test_an_unknown_key_gets_a_suggestion() -> None:
    assert of_refused({"num_speculative_token": 3}) == (
        "num_speculative_token is no key of it; did you mean num_speculative_tokens?"
    )
    assert of_refused({"suffix_max_tree_depth": 3}).endswith("suffix_decoding_max_tree_depth?")
    far = of_refused({"quantum": 3})
    assert far.startswith("quantum is no key of it (known: method, model, num_speculative_tokens")
    assert of_refused({3: 4}).startswith("3 is no key of it (known: ")


SATISFIED: dict[str, list[Any]] = {
    "disable_padded_drafter_batch": [False, True],
    "draft_tensor_parallel_size": [None, 1],
    "parallel_drafting": [False],
    "rejection_sample_method": ["standard", "strict"],
}
UNSATISFIED: dict[str, Any] = {
    "disable_padded_drafter_batch": "x",
    "draft_tensor_parallel_size": 2,
    "parallel_drafting": True,
    "rejection_sample_method": "synthetic",
}


@pytest.mark.parametrize("name", SATISFIED)
def test_keys_that_ask_for_what_is_anyway(name: str) -> None:
    for value in SATISFIED[name]:
        assert SpeculativeConfig.of({"method": "suffix", name: value}) == SpeculativeConfig(
            method="suffix"
        )
    wrong = UNSATISFIED[name]
    must = " or ".join(map(repr, SATISFIED[name]))
    assert of_refused({name: wrong}) == f"{name} must be {must}, got {wrong!r}"


def test_a_configuration_stays_itself() -> None:
    config = SpeculativeConfig(method="suffix", suffix_decoding_max_tree_depth=7)
    assert SpeculativeConfig.of(config) is config
    keys = {"method": "suffix", "suffix_decoding_max_tree_depth": 7}
    assert SpeculativeConfig.of(keys) == config


def test_keys_of_draft_models() -> None:
    keys = {
        "model": Path("folder"),
        "draft_sample_method": "probabilistic",
        "max_model_len": 100,
        "quantization": "awq",
        "revision": "v2",
        "enforce_eager": True,
    }
    config = SpeculativeConfig.of(keys)
    assert config.model == "folder" and config.method == "draft_model"
    for name, value in keys.items():
        assert name == "model" or getattr(config, name) == value
    plain = SpeculativeConfig.of({"model": "a/b", "draft_sample_method": "greedy"})
    assert plain == SpeculativeConfig(model="a/b")
    assert (plain.max_model_len, plain.quantization, plain.revision) == (None, None, None)
    assert plain.enforce_eager is None
    for name in ("enforce_eager", "draft_sample_method"):  # which say what is so anyway
        for value in {"enforce_eager": [True, False], "draft_sample_method": ["greedy"]}[name]:
            assert SpeculativeConfig.of({"method": "suffix", name: value}).method == "suffix"
