"""A float checkpoint in PyTorch's pickles, or in Mistral's format, is quantised as its twin."""

import json
from pathlib import Path

import numpy as np

from jax_engine.models.checkpoints.files_source import FilesSource
from tests.golden.families.checkpoints import cases, tensors_of
from tests.golden.families.parity import write
from tests.models.mistral_files import own_tensors, params_of, write_mistral
from tests.models.pytorch_files import write_pytorch_model
from tests.quantize.models import quantized

CASE = cases()["mistral"]


def test_the_codes_are_those_of_the_twin(tmp_path: Path) -> None:
    tensors, config = tensors_of(CASE), CASE["config"]
    (tmp_path / "twin").mkdir()
    write(CASE, tmp_path / "twin")
    write_pytorch_model(tmp_path / "pickled", config, tensors, num_shards=2)
    params = params_of(config)
    write_mistral(tmp_path / "own", params, own_tensors(tensors, params["head_dim"]), "shards")
    (tmp_path / "own" / "tekken.json").write_text("{}")
    outs = {
        name: quantized(tmp_path / name, tmp_path / f"{name} of 8 bits", format="w8a8")
        for name in ("twin", "pickled", "own")
    }
    expected = FilesSource(outs["twin"])
    for name in ("pickled", "own"):
        found = FilesSource(outs[name])
        assert {*found.names()} == {*expected.names()}
        for tensor in expected.names():
            np.testing.assert_array_equal(found.raw(tensor), expected.raw(tensor))
        fields = json.loads((outs[name] / "config.json").read_text())
        assert fields["architectures"] == config["architectures"]
        left = {file.name for file in outs[name].iterdir()}
        assert not left & {"params.json", "consolidated.safetensors.index.json"}
        assert not left & {"pytorch_model.bin.index.json"}
    assert (outs["own"] / "tekken.json").read_text() == "{}"
