"""AWQ and smoothing: scales of inputs, and what they are folded into."""

import logging
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from jax_engine.errors import ConfigError
from jax_engine.models.checkpoints.files_source import FilesSource
from jax_engine.models.model_loader import load_model
from jax_engine.quantize import input_scales
from jax_engine.quantize.float_model import FloatModel, open_float_model
from jax_engine.quantize.input_scales import (
    Fold,
    Inputs,
    check_folds,
    folds_of,
    no_inputs,
    readers,
    scale_inputs,
)
from jax_engine.quantize.options import Options
from jax_engine.quantize.rounding import Grid, Steps, round_to_nearest
from reference.quantization import smoothquant
from tests.golden import tiny_checkpoints as tiny
from tests.golden.families.checkpoints import PROMPT as FAMILY_PROMPT
from tests.golden.families.checkpoints import ROWS, cases, goldens
from tests.golden.families.parity import write
from tests.models.checkpoints import write_checkpoint
from tests.models.paged import PagedRun
from tests.models.test_decoder import TOLERANCE, reference_logits
from tests.quantize.models import CONFIG, PROMPT, all_decoded, parts_of, quantized, write_model

RNG = np.random.default_rng(7)
SIZES = np.where(RNG.random(96) < 0.1, 12, 1) * RNG.uniform(0.5, 1.5, 96)
MIXED = RNG.standard_normal((400, 12)) @ RNG.standard_normal((12, 96))
X = ((MIXED + 0.3 * RNG.standard_normal((400, 96))) * SIZES).astype(np.float32)
MATRIX = RNG.standard_normal((24, 96)).astype(np.float32)
TEXT = "The quick brown fox jumps over the lazy dog, and then it sleeps. " * 6


def inputs_of(x: np.ndarray) -> Inputs:
    wide = x.astype(np.float64)
    one = Inputs(wide.T @ wide, np.abs(x).sum(axis=0), np.abs(x).max(axis=0), x)
    return no_inputs(x.shape[1]).joined(one)


def error(numbers: np.ndarray) -> float:
    return float(np.square(X @ (numbers - MATRIX).T).sum())


@pytest.mark.parametrize("group", [16, 96])
@pytest.mark.parametrize("grid", [Steps(4), Steps(4, symmetric=False)], ids=str)
def test_awq_errs_less_than_rounding(grid: Grid, group: int) -> None:
    inputs = inputs_of(X)
    rounded = error(round_to_nearest(MATRIX, grid, group).numbers(grid))
    scales = input_scales.best_awq_scales([MATRIX], inputs, grid, group)
    scaled = error(round_to_nearest(MATRIX * scales, grid, group).numbers(grid) / scales)
    assert scaled < 0.8 * rounded
    every = [input_scales.awq_scales(inputs, one) for one in input_scales.EXPONENTS]
    errors = [
        error(round_to_nearest(MATRIX * one, grid, group).numbers(grid) / one) for one in every
    ]
    assert scaled == pytest.approx(min(errors), rel=1e-3)
    codes = input_scales.cut(MATRIX * scales, inputs.divided(scales), grid, group)
    assert error(codes.numbers(grid) / scales) < scaled


def test_awq_never_errs_more_than_rounding() -> None:
    """Neither where scales cannot be had, nor for a row whose groups err in common."""
    grid, inputs = Steps(4), inputs_of(X)
    spoilt = input_scales.best_awq_scales(
        [MATRIX], inputs, grid, 16, lambda s: np.where(s == 1, s, s**-3)
    )
    assert (spoilt == 1).all()
    rows = inputs.errors(input_scales.cut(MATRIX, inputs, grid, 16).numbers(grid) - MATRIX)
    plain = inputs.errors(round_to_nearest(MATRIX, grid, 16).numbers(grid) - MATRIX)
    assert (rows <= plain).all() and (rows < plain).any()


def test_ranges_are_cut_where_a_small_input_has_the_largest_weight() -> None:
    weight = np.tile(np.linspace(-1, 1, 16, dtype=np.float32), (3, 1))
    weight[:, 4] = 1.9
    x = np.random.default_rng(2).standard_normal((200, 16)).astype(np.float32)
    x[:, 4] *= 1e-3
    codes = input_scales.cut(weight, inputs_of(x), Steps(4), 16)
    assert (codes.scales < 0.7 * round_to_nearest(weight, Steps(4), 16).scales).all()


def test_smoothing_is_the_oracles() -> None:
    x, weight = X.copy(), MATRIX.copy()
    x[:, 3], weight[:, 9] = 0, 0
    found = input_scales.smoothquant_scales([weight[:10], weight[10:]], inputs_of(x), 0.3)
    np.testing.assert_array_equal(found, smoothquant.smoothing(x, weight, 0.3))
    codes, scales = smoothquant.quantise_rows(x)
    np.testing.assert_allclose(input_scales.rounded_rows(x), codes * scales, rtol=1e-6)


def test_smoothing_never_errs_more_than_rounding() -> None:
    grid, inputs = Steps(8, dtype="float32"), inputs_of(X)
    ones = np.ones(96, np.float32)
    plain = input_scales.smoothquant_error([MATRIX], inputs, grid, ones)
    for strength in (0.0, 0.5, 0.8):
        scales = input_scales.best_smoothquant_scales([MATRIX], inputs, grid, strength)
        now = input_scales.smoothquant_error([MATRIX], inputs, grid, scales)
        assert now < 0.9 * plain if strength == 0.5 else now <= plain
    spoilt = input_scales.best_smoothquant_scales([MATRIX], inputs, grid, 0.5, lambda s: s**-3)
    np.testing.assert_array_equal(spoilt, ones)


def test_statistics_of_inputs() -> None:
    joined = no_inputs(96).joined(inputs_of(X[:150])).joined(inputs_of(X[150:]))
    scales = np.random.default_rng(3).uniform(0.5, 2, 96).astype(np.float32)
    for found, wanted in zip(joined.divided(scales), inputs_of(X / scales), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-2)
    change = MATRIX - np.rint(MATRIX)
    expected = np.square(X @ change.T).sum(axis=0)
    np.testing.assert_allclose(joined.errors(change), expected, rtol=1e-3)


def test_scales_are_those_that_a_rounded_norm_leaves() -> None:
    rng = np.random.default_rng(3)
    fold, wanted = Fold(("norm",), 1), rng.uniform(0.5, 2, 96).astype(np.float32)
    norm = rng.uniform(-0.5, 0.5, 96).astype(ml_dtypes.bfloat16)  # is added to one
    norm[5] = -1  # this input is always zero
    scales = fold.possible(norm, wanted)
    stored = fold.divided(norm, scales)
    assert stored.dtype == norm.dtype and scales[5] == 1
    whole, divided = (1 + values.astype(np.float32) for values in (norm, stored))
    np.testing.assert_allclose(divided * scales, whole, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(np.delete(scales, 5), np.delete(wanted, 5), rtol=0.02)


FAMILIES = {  # with the parameters that are not scaled
    "gemma2": {"attention.o.weight"},
    "cohere": {"attention.qkv.weight", "attention.o.weight", "mlp.gate_up.weight"},
    "olmo2": {"attention.qkv.weight", "attention.o.weight", "mlp.gate_up.weight"},
    "phi3": {"attention.o.weight", "mlp.down.weight"},
    "starcoder2": {"attention.o.weight", "mlp.down.weight"},
}


def write_scaled(model: FloatModel, out: Path) -> None:
    """A float checkpoint whose inputs are scaled by drawn numbers, wherever that is possible."""
    chosen = {model.name_in_file(one) for layer in model.layers for one in layer.matrices()}
    tensors = {name: model.files.raw(name) for name in model.files.names()}
    rng = np.random.default_rng(4)
    for layer in model.layers:
        inputs = {}
        for parameter in folds_of(layer):
            name = readers(model, layer, parameter)[0]
            inputs[parameter] = inputs_of(np.ones((1, model.files.shape(name)[1]), np.float32))

        def choose(weights: list[np.ndarray], inputs: Inputs, possible: Any) -> np.ndarray:
            drawn = rng.uniform(0.3, 3, weights[0].shape[1]).astype(np.float32)
            return np.asarray(possible(drawn))

        changed, now = scale_inputs(model, layer, inputs, chosen, choose)
        tensors |= changed
        for parameter, fold in folds_of(layer).items():
            if isinstance(fold, Fold) and "norm" in fold.makers[0]:  # inputs were ones
                name = model.name_in_file(fold.makers[0])
                part = (changed[name] + fold.one) / (model.files.raw(name) + fold.one)
                np.testing.assert_allclose(now[parameter].largest, part, rtol=1e-4)
    out.mkdir()
    (out / "config.json").write_bytes((model.path / "config.json").read_bytes())
    contiguous = {name: np.ascontiguousarray(x) for name, x in tensors.items()}
    save_file(contiguous, out / "model.safetensors")


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.slow
def test_folding_leaves_logits(name: str, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    write(cases()[name], tmp_path / "model")
    model = open_float_model(str(tmp_path / "model"))
    for layer in model.layers:
        unscaled = {one for one, fold in folds_of(layer).items() if isinstance(fold, str)}
        assert unscaled == FAMILIES[name]
    write_scaled(model, tmp_path / "scaled")
    loaded = load_model(str(tmp_path / "scaled"))
    found = PagedRun(loaded.config, loaded.graphdef, loaded.params).feed(FAMILY_PROMPT)
    wanted = goldens()[f"{name}.logits"][: len(ROWS)]
    np.testing.assert_allclose(found[ROWS], wanted, **TOLERANCE)


def test_every_fold_of_one_model(tmp_path: Path) -> None:
    """Values that no heads share, and biases."""
    config = tiny.CONFIGS["no_gqa"] | {"attention_bias": True, "mlp_bias": True}
    model = open_float_model(str(write_checkpoint(tmp_path / "model", config)))
    assert all(isinstance(one, Fold) for one in folds_of(model.layers[0]).values())
    write_scaled(model, tmp_path / "scaled")
    loaded = load_model(str(tmp_path / "scaled"))
    prompt = [7, 3, 60, 12, 45, 1]
    found = PagedRun(loaded.config, loaded.graphdef, loaded.params).feed(prompt)
    np.testing.assert_allclose(found, reference_logits(config, prompt), **TOLERANCE)
    norm = "model.layers.0.input_layernorm.weight"
    assert (FilesSource(tmp_path / "scaled").raw(norm) != model.files.raw(norm)).all()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scaling")
    (folder / "text").write_text(TEXT)
    return write_model(folder / "model")


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("w4a16", {"algorithm": "awq"}),
        ("awq", {"algorithm": "awq"}),
        ("w8a8", {"smoothing_strength": 0.5}),
        ("w8a8", {"smoothing_strength": 0.5, "algorithm": "gptq"}),
    ],
)
def test_a_whole_model(model: Path, tmp_path: Path, kind: str, options: dict[str, Any]) -> None:
    """What is written computes what the oracle makes of it, and about what the model does."""
    text = {"calibration": str(model.parent / "text"), "samples": 3, "sample_length": 48}
    out = quantized(model, tmp_path / "out", format=kind, **options, **text)
    weights = all_decoded(out, kind)
    norms = [name for name in weights if "layers" in name and "norm" in name]
    for name in norms:
        weights[name] = FilesSource(out).raw(name)
    assert len(norms) == 4 and any((weights[n] != tiny.weights(CONFIG)[n]).any() for n in norms)
    loaded = load_model(str(out), quantization="dequantized")
    found = PagedRun(loaded.config, loaded.graphdef, loaded.params).feed(PROMPT)
    np.testing.assert_allclose(found, reference_logits(CONFIG, PROMPT, weights), **TOLERANCE)
    float_logits = reference_logits(CONFIG, PROMPT)
    limit = 0.1 if kind == "w8a8" else 0.5
    assert np.linalg.norm(found - float_logits) < limit * np.linalg.norm(float_logits)


def test_what_is_ignored_is_not_scaled(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "jax_engine.quantize.input_scales")
    text = {"calibration": str(model.parent / "text"), "samples": 2, "sample_length": 32}
    options = {"format": "w4a16", "algorithm": "awq", "ignore": ("k_proj",)} | text
    out = quantized(model, tmp_path / "out", **options)
    before, after = FilesSource(model), FilesSource(out)
    kept, scaled = (f"model.layers.0.{one}_layernorm.weight" for one in ("input", "post_attention"))
    np.testing.assert_array_equal(after.raw(kept), before.raw(kept))
    assert (after.raw(scaled) != before.raw(scaled)).any()
    module = "model.layers.0.self_attn.k_proj"
    np.testing.assert_array_equal(
        parts_of(out, module)["weight"], parts_of(model, module)["weight"]
    )
    assert "inputs of attention.qkv.weight are not scaled: model.layers.0.self_attn.k_proj" in (
        caplog.text
    )
    assert "attention.o.weight are not scaled: query heads share values (2 of 2 layers)" in (
        caplog.text
    )


def test_a_model_without_anything_to_scale_is_refused(model: Path) -> None:
    opened = open_float_model(str(model))
    with pytest.raises(ConfigError, match=r"no inputs of .* can be scaled .*share values"):
        check_folds(opened, ["model.layers.0.self_attn.k_proj.weight"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "fp8", "algorithm": "awq"}, "needs format 'w4a16' or 'awq', got 'fp8'"),
        ({"format": "w4a16", "smoothing_strength": 0.5}, "needs format 'w8a8', got 'w4a16'"),
        ({"format": "w8a8", "smoothing_strength": 1.5}, "must be from 0 to 1, got 1.5"),
        ({"format": "w8a8", "smoothing_strength": float("nan")}, "must be from 0 to 1"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Options(**options)
