"""Interrupted and repeated runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from jax_engine.errors import ConfigError, WeightsError
from jax_engine.quantize.shards import STATE, Output
from tests.quantize.models import digests, quantized, write_model

TEXT = "It was a dark and stormy night; the rain fell in torrents. " * 4
LAST = "model-00003-of-00003.safetensors"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("resume")
    (folder / "text").write_text(TEXT)
    return write_model(folder / "model")


def options_of(model: Path, algorithm: str) -> dict[str, Any]:
    text = str(model.parent / "text")
    found = {"format": "w4a16", "algorithm": algorithm, "sample_length": 32, "calibration": text}
    smoothed = {"format": "w8a8", "algorithm": "rtn", "smoothing_strength": 0.5}
    return found | smoothed if algorithm == "smoothed" else found


@pytest.mark.parametrize("algorithm", ["rtn", "gptq", "awq", "smoothed"])
def test_an_interrupted_run_ends_with_the_same_bytes(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    options = options_of(model, algorithm)
    whole = digests(quantized(model, tmp_path / "whole", **options))
    written: list[str] = []
    write = Output.write

    def interrupted(self: Output, name: str, tensors: Any) -> None:
        if len(written) == 1:
            (self.path / f"{name}.partial").write_bytes(b"half of it")
            raise KeyboardInterrupt
        written.append(name)
        write(self, name, tensors)

    monkeypatch.setattr(Output, "write", interrupted)
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        quantized(model, out, **options)
    assert not (out / "config.json").exists()
    monkeypatch.setattr(Output, "write", lambda *args: (written.append(args[1]), write(*args))[1])
    assert digests(quantized(model, out, **options)) == whole
    assert len(written) == 3  # the first shard is not made again
    assert digests(quantized(model, out, **options)) == whole
    assert len(written) == 3


def test_a_damaged_shard_is_made_again(model: Path, tmp_path: Path) -> None:
    out = quantized(model, tmp_path / "out", format="w8a8")
    whole = digests(out)
    with (out / LAST).open("r+b") as file:
        file.seek(-3, 2)
        file.write(b"abc")
    assert digests(out) != whole
    assert digests(quantized(model, out, format="w8a8")) == whole


@pytest.mark.parametrize(
    ("changed", "named"),
    [({"group_size": 16}, "group_size"), ({"ignore": ("q_proj",)}, "ignore")],
)
def test_another_request_is_refused(
    model: Path, tmp_path: Path, changed: dict[str, Any], named: str
) -> None:
    out = quantized(model, tmp_path / "out", format="w4a16")
    whole = digests(out)
    with pytest.raises(ConfigError, match=f"was begun with {named}"):
        quantized(model, out, format="w4a16", **changed)
    other = write_model(tmp_path / "other")
    fields = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(fields | {"rope_theta": 5.0}))
    with pytest.raises(ConfigError, match="was begun with config_sha256"):
        quantized(other, out, format="w4a16")
    assert digests(out) == whole


def test_a_disk_that_is_full_while_writing(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("jax_engine.quantize.shards.write_tensors", full)
    with pytest.raises(WeightsError, match="No space left"):
        quantized(model, tmp_path / "out", format="w4a16")
    assert [file.name for file in (tmp_path / "out").iterdir()] == [STATE]
