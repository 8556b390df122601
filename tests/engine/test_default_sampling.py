"""What a model's makers suggest: generation_config.json, from the model, a folder, or nowhere."""

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jax_engine import ConfigError, SamplingParams, WeightsError
from jax_engine.engine.requests.default_sampling import default_sampling, suggested_ends

SUGGESTED = {"temperature": 0.5, "max_new_tokens": 7, "top_k": None, "do_sample": True}


def found(source: Path, setting: str = "auto", override: Any = None) -> dict[str, Any]:
    return default_sampling(settings_of(setting, override), source)


def settings_of(setting: str, override: Any = None) -> Any:
    return SimpleNamespace(generation_config=setting, override_generation_config=override)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "generation_config.json").write_text(json.dumps(SUGGESTED))
    return tmp_path


def test_of_the_model(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "jax_engine"):
        assert found(model) == {"temperature": 0.5, "max_tokens": 7}
    assert len(caplog.records) == 1, "who did not ask for them is told of them"
    assert found(model, override={"temperature": None, "top_p": 0.5}) == {
        "max_tokens": 7, "top_p": 0.5,
    }  # fmt: skip


def test_none_or_only_one_s_own(
    model: Path, tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing that was not asked for counts, so there is nothing to be told."""
    bare = tmp_path_factory.mktemp("bare")
    with caplog.at_level(logging.INFO, "jax_engine"):
        assert found(model, "vllm") == found(bare) == {}
        assert found(model, "vllm", {"top_k": 3}) == {"top_k": 3}
        assert found(model / "generation_config.json") == {}, "a file is a GGUF file"
    assert not caplog.records


def test_of_a_folder_that_was_named(
    model: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path_factory.mktemp("bare")
    suggested = {"temperature": 0.5, "max_tokens": 7}
    assert found(bare, str(model)) == found(bare / "a.gguf", str(model)) == suggested
    monkeypatch.setenv("HOME", str(model.parent))
    assert found(bare, f"~/{model.name}") == suggested
    with pytest.raises(WeightsError, match=r"generation_config\.json"):
        found(model, str(bare))


def test_all_that_vllm_reads(model: Path) -> None:
    """`do_sample` is no reason to be greedy; 0 for `top_k` is all tokens; the rest is left out."""
    suggested = {"temperature": 0.6, "top_p": 0.9, "top_k": 0, "min_p": 0.1, "do_sample": False}
    more = {"repetition_penalty": 1.1, "max_new_tokens": 9, "num_beams": 4, "eos_token_id": [2, 3]}
    (model / "generation_config.json").write_text(json.dumps(suggested | more))
    params = SamplingParams.from_optional(**found(model))
    assert params == SamplingParams(
        temperature=0.6, top_p=0.9, top_k=0, min_p=0.1, repetition_penalty=1.1, max_tokens=9
    )


def test_ends_of_a_folder_that_was_named(model: Path) -> None:
    (model / "generation_config.json").write_text('{"eos_token_id": [7, 3]}')
    for setting, ends in (("auto", ()), ("vllm", ()), (str(model), (7, 3))):
        assert suggested_ends(settings_of(setting)) == ends
    (model / "generation_config.json").write_text('{"eos_token_id": "x"}')
    with pytest.raises(ConfigError, match=r"generation_config\.json: eos_token_id must be"):
        suggested_ends(settings_of(str(model)))
    with pytest.raises(WeightsError, match=r"generation_config\.json"):
        suggested_ends(settings_of(str(model / "nowhere")))


def test_suggestions_that_no_request_may_have(model: Path) -> None:
    with pytest.raises(WeightsError, match=r"generation_config \(auto\): temperature must"):
        found(model, override={"temperature": -1.0})
