"""What a driver gets to know of a model comes through bytes as it was, for every family."""

import json
import pickle
from pathlib import Path

import pytest

from jax_engine.lora.modules import modules_of
from jax_engine.models.checkpoints.checkpoint import read_config
from tests.golden.families.checkpoints import cases


@pytest.mark.parametrize("name", sorted(cases()))
def test_the_configuration_of_a_family(name: str, tmp_path: Path) -> None:
    """It includes the modules that adapters may change, which follow from its transforms."""
    (tmp_path / "config.json").write_text(json.dumps(cases()[name]["config"]), "utf-8")
    config = read_config(tmp_path, None, None)
    again = pickle.loads(pickle.dumps(config))
    assert again == config
    assert modules_of(again).by_name == modules_of(config).by_name
