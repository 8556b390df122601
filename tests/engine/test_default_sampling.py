"""What a model's makers suggest: generation_config.json, from the model, a folder, or nowhere."""

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jax_engine import WeightsError
from jax_engine.engine.default_sampling import default_sampling

SUGGESTED = {"temperature": 0.5, "max_new_tokens": 7, "top_k": None, "do_sample": True}


def found(source: Path, setting: str = "auto", override: Any = None) -> dict[str, Any]:
    config: Any = SimpleNamespace(generation_config=setting, override_generation_config=override)
    return default_sampling(config, source)


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


def test_suggestions_that_no_request_may_have(model: Path) -> None:
    with pytest.raises(WeightsError, match=r"generation_config \(auto\): temperature must"):
        found(model, override={"temperature": -1.0})
