"""Written checkpoints: the oracle decodes them, and the loader computes with what it decodes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jax_engine.errors import ConfigError
from jax_engine.models.checkpoints.files_source import FilesSource
from jax_engine.models.model_loader import load_model
from jax_engine.quantize.rounding import Floats, Steps
from reference.quantization import awq, compressed_tensors, fp8, gptq, steps
from tests.golden import tiny_checkpoints as tiny
from tests.golden.families.checkpoints import cases
from tests.golden.families.parity import write
from tests.models.paged import PagedRun
from tests.models.test_decoder import TOLERANCE, reference_logits
from tests.quantize.models import (
    CONFIG,
    PROMPT,
    all_decoded,
    decoded,
    parts_of,
    quantized,
    write_model,
)

FORMATS = ("w4a16", "w8a16", "w8a8", "gptq", "awq", "fp8")
MODULE = "model.layers.1.mlp.down_proj"
MATRIX = tiny.weights(CONFIG)[f"{MODULE}.weight"]


# How a model embeds, and its template for tools.
IN_FOLDERS = ("1_Pooling/config.json", "additional_chat_templates/tool_use.jinja")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_model(tmp_path_factory.mktemp("quantize") / "model")
    for name in IN_FOLDERS:
        (folder / name).parent.mkdir()
        (folder / name).write_text('{"pooling_mode": "mean"}')
    return folder


@pytest.fixture(scope="module")
def outs(model: Path) -> dict[str, Path]:
    return {name: quantized(model, model.parent / name, format=name) for name in FORMATS}


def nearest(group: int, bits: int, *, symmetric: bool = True) -> np.ndarray:
    """What the oracle's steps with float16 scales make of the matrix."""
    grouped = MATRIX.reshape(len(MATRIX), -1, group)
    choose = steps.symmetric if symmetric else steps.asymmetric
    scales, zeros = choose(grouped, bits, np.float16)
    codes = steps.nearest(grouped, scales, zeros, bits).astype(np.float32)
    numbers = scales.astype(np.float32)[..., None] * (codes - zeros[..., None])
    return numbers.reshape(MATRIX.shape)


def test_numbers_are_the_nearest_that_the_oracle_finds(outs: dict[str, Path]) -> None:
    np.testing.assert_array_equal(decoded(outs["w4a16"], MODULE, "w4a16"), nearest(32, 4))
    np.testing.assert_array_equal(decoded(outs["w8a16"], MODULE, "w8a16"), nearest(96, 8))
    wanted: dict[str, Any] = {
        "gptq": gptq.quantise(MATRIX, 4, 32, symmetric=True)._asdict(),
        "awq": awq.quantise(MATRIX, 32)._asdict(),
        "w8a8": compressed_tensors.quantise_integers(MATRIX, 96)._asdict(),
    }
    for name, expected in wanted.items():
        found = parts_of(outs[name], MODULE)
        assert found.keys() == {end for end, value in expected.items() if value is not None}
        for end, value in found.items():
            np.testing.assert_array_equal(value, expected[end], err_msg=f"{name} {end}")
    expected = fp8.decode(fp8.quantise(MATRIX, (1, 96)))
    np.testing.assert_array_equal(decoded(outs["fp8"], MODULE, "fp8"), expected)


@pytest.mark.parametrize("kind", ["w4a16", "gptq"])
def test_zero_points(model: Path, tmp_path: Path, kind: str) -> None:
    out = quantized(model, tmp_path / kind, format=kind, group_size=16, asymmetric=True)
    found = decoded(out, MODULE, kind)
    expected = nearest(16, 4, symmetric=False)
    if kind == "gptq":
        expected = gptq.decode(gptq.quantise(MATRIX, 4, 16), 4)
    np.testing.assert_array_equal(found, expected)
    assert np.abs(found - MATRIX).mean() < np.abs(nearest(16, 4) - MATRIX).mean()


@pytest.mark.parametrize("kind", FORMATS)
def test_logits_are_those_of_the_decoded_weights(outs: dict[str, Path], kind: str) -> None:
    expected = reference_logits(CONFIG, PROMPT, all_decoded(outs[kind], kind))
    held = load_model(str(outs[kind]))
    numbers = load_model(str(outs[kind]), quantization="dequantized")
    assert held.num_bytes < numbers.num_bytes
    for one in (numbers,) if kind in ("w8a8", "fp8") else (held, numbers):
        found = PagedRun(one.config, one.graphdef, one.params).feed(PROMPT)
        np.testing.assert_allclose(found, expected, **TOLERANCE)


@pytest.mark.parametrize("kind", FORMATS)
def test_the_rest_is_copied(model: Path, outs: dict[str, Path], kind: str) -> None:
    before, after = FilesSource(model), FilesSource(outs[kind])
    for name in before.names():
        if not name.endswith("_proj.weight"):
            np.testing.assert_array_equal(after.raw(name), before.raw(name))
            assert after.dtype(name) == before.dtype(name)
    for name in ("tokenizer.json", *IN_FOLDERS):
        assert (outs[kind] / name).read_bytes() == (model / name).read_bytes()
    config = json.loads((outs[kind] / "config.json").read_text())
    del config["quantization_config"]
    assert config == CONFIG


@pytest.mark.parametrize("kind", FORMATS)
def test_what_is_ignored_stays(model: Path, tmp_path: Path, kind: str) -> None:
    ignore = (r"layers\.0\..*q_proj$", "down_proj")
    out = quantized(model, tmp_path / kind, format=kind, ignore=ignore)
    for module in ("model.layers.0.self_attn.q_proj", MODULE):
        assert [*parts_of(out, module)] == ["weight"]
    assert "weight" not in parts_of(out, "model.layers.1.self_attn.q_proj") or kind in (
        "w8a8",
        "fp8",
    )
    load_model(str(out))  # the loader finds all tensors
    assert MODULE in (out / "config.json").read_text().replace("\\", "")


def test_of_two_codes_that_are_as_near_the_even_one_is_taken() -> None:
    numbers = np.array([[-7.5, 0.5, 1.5, 2.5, -0.5, -1.5]], np.float32)
    shared = Steps(4).choose(numbers)
    assert shared.scales.tolist() == [1.0]
    codes = Steps(4).encode(numbers, shared)
    assert codes.tolist() == [[0, 8, 10, 10, 8, 6]]


def test_scales_that_a_grid_cannot_have() -> None:
    zeros = np.zeros((1, 4), np.float32)
    tiny_numbers = np.full((1, 4), 1e-12, np.float32)  # their scale is 0 in float16
    for grid in (Steps(4), Steps(4, symmetric=False), Floats()):
        for numbers in (zeros, tiny_numbers):
            shared = grid.choose(numbers)
            assert (shared.scales > 0).all()
            found = grid.decode(grid.encode(numbers, shared), shared)
            np.testing.assert_allclose(found, numbers, atol=1e-11)


@pytest.mark.parametrize("name", ["gpt2", "granitemoe", "gpt_oss"])
def test_matrices_that_no_format_holds_are_refused(tmp_path: Path, name: str) -> None:
    write(cases()[name], tmp_path)
    with pytest.raises(ConfigError, match="is not a single matrix"):
        quantized(tmp_path, tmp_path / "out", format="w8a8")


def test_experts_are_quantised_and_their_router_is_not(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    write(cases()["mixtral"], model)
    out = quantized(model, tmp_path / "out", format="w8a8")
    load_model(str(out))
    found = parts_of(out, "model.layers.0.block_sparse_moe")
    assert found["experts.1.w2.weight"].dtype == np.int8
    assert found["gate.weight"].dtype == np.float32
    with pytest.raises(ConfigError, match="does not record the inputs of experts"):
        quantized(model, tmp_path / "gptq", format="w4a16", algorithm="gptq", group_size=-1)
