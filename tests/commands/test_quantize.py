"""`jax-engine quantize`: what it writes, and how it refuses."""

import json
import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.commands.conftest import Run
from tests.golden import tiny_checkpoints as tiny
from tests.quantize.models import CONFIG, write_model

Usage = namedtuple("Usage", "total used free")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("commands") / "model")


def test_it_writes_a_model_that_answers(run: Run, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    ended = run("quantize", model, out, "--format", "w4a16", "--ignore", "o_proj")
    assert (ended.status, ended.out) == (0, f"{out}\n")
    settings = json.loads((out / "config.json").read_text())["quantization_config"]
    assert settings["config_groups"]["group_0"]["weights"]["group_size"] == 32
    assert "model.layers.1.self_attn.o_proj" in settings["ignore"]
    flags = ["--max-tokens=4", "--temperature=0", "--block-size=4", "--num-gpu-blocks-override=40"]
    answered = run("complete", "Hi", "--model", out, *flags)
    assert (answered.status, bool(answered.out)) == (0, True)


@pytest.mark.parametrize(
    ("flags", "status", "message"),
    [
        (["--format", "q4"], 2, "invalid choice: 'q4'"),
        (["--format", "w8a8", "--group-size", "32"], 1, "group_size must be -1"),
        (["--format", "fp8", "--asymmetric"], 1, "no zero points"),
        (["--format", "w4a16", "--group-size", "0"], 1, "group_size must be -1 or from 1 on"),
        (["--format", "w4a16", "--group-size", "48"], 1, "does not divide the 32 inputs"),
        (["--format", "w4a16", "--act-order"], 1, "act_order needs"),
        (["--format", "w4a16", "--damping", "0"], 1, "damping must be"),
        (["--format", "w4a16", "--samples", "0"], 1, "samples must be"),
        (["--format", "w4a16", "--seed", "-1"], 1, "seed must be"),
        (["--format", "w4a16", "--ignore", "("], 1, "must be a regular expression"),
        (["--format", "w4a16", "--ignore", "."], 1, "leaves no matrix"),
        (["--format", "gptq", "--algorithm=gptq", "--calibration=no/file"], 1, "is unreadable"),
    ],
)
def test_flags_that_are_refused(
    run: Run, model: Path, tmp_path: Path, flags: list[str], status: int, message: str
) -> None:
    ended = run("quantize", model, tmp_path / "out", *flags)
    assert ended.status == status and message in ended.err
    lines = [line for line in ended.err.splitlines() if "error: " in line]
    assert len(lines) == 1
    assert not list(tmp_path.glob("out/*.safetensors"))


def test_models_that_are_refused(run: Run, model: Path, tmp_path: Path) -> None:
    quantised = tmp_path / "quantised"
    assert run("quantize", model, quantised, "--format", "awq").status == 0
    gguf = tmp_path / "model.gguf"
    gguf.write_bytes(b"GGUF")
    for given, message in ((quantised, "is quantised already"), (gguf, "is a GGUF file")):
        ended = run("quantize", given, tmp_path / "out", "--format", "awq")
        assert ended.status == 1 and message in ended.err
        assert not (tmp_path / "out").exists()


def test_directories_that_are_refused(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("keep")
    for out in (tmp_path / "full", tmp_path / "full" / "mine", model):
        ended = run("quantize", model, out, "--format", "w4a16")
        assert ended.status == 1 and "is not empty" in ended.err
    assert (tmp_path / "full" / "mine").read_text() == "keep"
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1 << 30, 1 << 30, 1000))
    ended = run("quantize", model, tmp_path / "out", "--format", "w4a16")
    assert ended.status == 1 and "its disk has 0 MiB free" in ended.err


def odd_model(directory: Path, config: dict[str, Any], **tensors: np.ndarray) -> Path:
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config))
    save_file(tiny.weights(config) | tensors, directory / "model.safetensors")
    return directory


def test_tensors_that_are_refused(run: Run, tmp_path: Path) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    broken = tiny.weights(CONFIG)[name].copy()
    broken[3, 3] = np.inf
    model = odd_model(tmp_path / "infinite", CONFIG, **{name: broken})
    ended = run("quantize", model, tmp_path / "out", "--format", "w4a16")
    assert ended.status == 1 and name in ended.err and "not all numbers are finite" in ended.err
    narrow = odd_model(tmp_path / "narrow", CONFIG | {"intermediate_size": 100})
    ended = run("quantize", narrow, tmp_path / "narrow-out", "--format", "awq")
    assert ended.status == 1 and "none of (128, 64, 32) divides the 100 inputs" in ended.err
    ended = run("quantize", narrow, tmp_path / "narrow-out", "--format", "awq", "--group-size=-1")
    assert ended.status == 1 and "outputs in multiples of 8" in ended.err
