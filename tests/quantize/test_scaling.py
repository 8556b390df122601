"""AWQ's scales and SmoothQuant's: they change no product of numbers, and errors become smaller."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jax_engine.errors import ConfigError
from jax_engine.models.load import load_model
from jax_engine.models.safetensors_loader import SafetensorsSource
from jax_engine.quantize import awq
from jax_engine.quantize.folding import folds_of
from jax_engine.quantize.grids import Grid, Steps
from jax_engine.quantize.inputs import Inputs
from jax_engine.quantize.layers import open_float_model
from jax_engine.quantize.layouts import layout_of
from jax_engine.quantize.options import Options
from jax_engine.quantize.rounding import round_to_nearest
from jax_engine.quantize.scaling import scale_inputs, smoothed
from reference.quantization import smoothquant
from tests.golden import tiny_checkpoints as tiny
from tests.golden.families.checkpoints import cases, tensors_of
from tests.models.checkpoints import write_checkpoint
from tests.models.paged import PagedRun
from tests.models.quantised_files import write_file
from tests.quantize.models import CONFIG, PROMPT, all_decoded, quantized, write_model

GROUP, COLUMNS = 16, 96
TEXT = "The quick brown fox jumps over the lazy dog, and then it sleeps. " * 12
GRIDS = [Steps(4), Steps(4, symmetric=False)]


def correlated(columns: int = COLUMNS, rows: int = 400) -> np.ndarray:
    """Inputs made of a few numbers a row; some columns are large."""
    rng = np.random.default_rng(5)
    mixed = rng.standard_normal((rows, 12)) @ rng.standard_normal((12, columns))
    x = mixed + 0.3 * rng.standard_normal((rows, columns))
    sizes = np.where(rng.random(columns) < 0.1, 12, 1) * rng.uniform(0.5, 1.5, columns)
    return (x * sizes).astype(np.float32)


def inputs_of(x: np.ndarray) -> Inputs:
    wide, sizes = x.astype(np.float64), np.abs(x)
    return Inputs(wide.T @ wide, sizes.sum(axis=0, dtype=np.float64), sizes.max(axis=0), len(x))


WEIGHT = np.random.default_rng(6).standard_normal((24, COLUMNS)).astype(np.float32)


def error(x: np.ndarray, weight: np.ndarray, numbers: np.ndarray) -> float:
    return float(np.linalg.norm(x @ (numbers - weight).T))


def rounded(weight: np.ndarray, grid: Grid) -> np.ndarray:
    return round_to_nearest(weight, grid, GROUP).numbers(grid)


@pytest.mark.parametrize("grid", GRIDS)
def test_awq_errs_less_than_rounding(grid: Grid) -> None:
    x = correlated()
    inputs = inputs_of(x)
    scales = awq.best_scales([WEIGHT], inputs, grid, GROUP)
    plain = error(x, WEIGHT, rounded(WEIGHT, grid))
    assert error(x, WEIGHT, rounded(WEIGHT * scales, grid) / scales) < 0.9 * plain
    cut = awq.cut(WEIGHT * scales, inputs.divided_by(scales), grid, GROUP).numbers(grid) / scales
    assert error(x, WEIGHT, cut) < 0.9 * plain


def test_awq_s_scales_are_the_best_of_their_grid() -> None:
    x, grid, found = correlated(), GRIDS[0], []
    for exponent in awq.EXPONENTS:
        s = np.abs(x).mean(axis=0) ** exponent
        s = (s / np.sqrt(s.max() * s.min())).astype(np.float32)
        found.append(error(x, WEIGHT, rounded(WEIGHT * s, grid) / s))
    scales = awq.best_scales([WEIGHT], inputs_of(x), grid, GROUP)
    numbers = rounded(WEIGHT * scales, grid) / scales
    assert error(x, WEIGHT, numbers) == pytest.approx(min(found), rel=0.02)


def test_ranges_are_cut_where_a_small_input_has_the_largest_weight() -> None:
    weight = np.tile(np.linspace(-1, 1, GROUP, dtype=np.float32), (3, 1))
    weight[:, 4] = 1.9
    x = np.random.default_rng(2).standard_normal((200, GROUP)).astype(np.float32)
    x[:, 4] *= 1e-3
    cut = awq.cut(weight, inputs_of(x), GRIDS[0], GROUP)
    assert (cut.scales < 0.7 * round_to_nearest(weight, GRIDS[0], GROUP).scales).all()
    assert error(x, weight, cut.numbers(GRIDS[0])) < error(x, weight, rounded(weight, GRIDS[0]))


def test_an_input_that_is_always_zero_does_no_harm() -> None:
    x = correlated()
    x[:, 7] = 0
    scales = awq.best_scales([WEIGHT], inputs_of(x), GRIDS[0], GROUP)
    assert np.isfinite(scales).all() and (scales > 0).all()


def test_what_is_known_of_inputs_adds_up() -> None:
    x = correlated()
    inputs = inputs_of(x[:100]).plus(inputs_of(x[100:]))
    change = WEIGHT - np.rint(WEIGHT)
    wide = x.astype(np.float64) @ change.T.astype(np.float64)
    assert inputs.error(change) == pytest.approx((wide**2).sum(), rel=1e-4)
    scales = np.linspace(0.5, 2, COLUMNS)
    found, other = inputs.divided_by(scales), inputs_of((x / scales).astype(np.float32))
    np.testing.assert_allclose(found.products, other.products, rtol=1e-3, atol=1)
    np.testing.assert_allclose(found.largest, other.largest, rtol=1e-6)
    assert inputs.rows == found.rows == 400


def test_smoothing_is_the_oracle_s() -> None:
    x, weight = correlated(), WEIGHT.copy()
    x[:, 3], weight[:, 9] = 0, 0
    found = smoothed([weight[:10], weight[10:]], inputs_of(x), 0.3)
    np.testing.assert_array_equal(found, smoothquant.smoothing(x, weight, 0.3))


# What makes inputs: norms, with one added or with a bias; values, of one head each; gated rows.
FAMILIES = {
    "llama": 3,
    "gemma": 3,
    "stablelm": 3,
    "opt": 3,
    "cohere": 1,
    "olmo2": 1,
}


def logits(path: Path, prompt: list[int]) -> np.ndarray:
    model = load_model(str(path))
    return PagedRun(model.config, model.graphdef, model.params).feed(prompt)


@pytest.mark.parametrize("name", FAMILIES)
def test_scales_of_inputs_change_no_product(name: str, tmp_path: Path) -> None:
    case, rng = cases()[name], np.random.default_rng(3)
    tensors = tensors_of(case)
    path = write_checkpoint(tmp_path / "before", case["config"], tensors)
    model = open_float_model(str(path))
    after, folds = dict(tensors), 0
    for layer in model.layers:
        values = {one: model.files.raw(model.name_in_file(one)) for one in layer.tensors()}
        matrices = layer.matrices()
        for fold in folds_of(layer):
            readers = [one for one, parameter in matrices.items() if parameter == fold.reader]
            scales = rng.uniform(0.5, 2, values[readers[0]].shape[1]).astype(np.float32)
            fold.apply(values, readers, scales)
            folds += layer.number == 0
        after |= {model.name_in_file(one): value for one, value in values.items()}
    assert folds == FAMILIES[name]
    other = write_checkpoint(tmp_path / "after", case["config"], after)
    prompt = PROMPT[:6] if case["config"]["vocab_size"] > max(PROMPT) else [1, 5, 7, 3, 9]
    np.testing.assert_allclose(logits(other, prompt), logits(path, prompt), rtol=1e-3, atol=1e-4)


def test_a_norm_keeps_its_dtype_and_what_it_reads_makes_up_for_that(tmp_path: Path) -> None:
    import ml_dtypes

    weights = tiny.weights(CONFIG)
    narrow: dict[str, Any] = {n: w.astype(ml_dtypes.bfloat16) for n, w in weights.items()}
    (tmp_path / "model").mkdir()
    write_file(tmp_path / "model" / "model.safetensors", narrow)
    (tmp_path / "model" / "config.json").write_text(json.dumps(CONFIG))
    model = open_float_model(str(tmp_path / "model"))
    layer = model.layers[0]
    values = {one: model.files.raw(one) for one in layer.tensors()}
    before = dict(values)
    fold = next(folds_of(layer))
    readers = [one for one, parameter in layer.matrices().items() if parameter == fold.reader]
    scales = fold.apply(values, readers, np.linspace(0.3, 3, 64, dtype=np.float32))
    norm = fold.makers[0]
    assert values[norm].dtype == before[norm].dtype
    for one in readers:
        old = before[norm].astype(np.float32) * before[one].astype(np.float32)
        np.testing.assert_allclose(values[norm].astype(np.float32) * values[one], old, rtol=1e-5)
    assert np.abs(scales / np.linspace(0.3, 3, 64) - 1).max() > 1e-4


def test_inputs_are_known_as_they_are_when_they_are_scaled(tmp_path: Path) -> None:
    model = open_float_model(str(write_model(tmp_path / "model")))
    layer = model.layers[0]
    values = {one: model.files.raw(one) for one in layer.tensors()}
    sizes = {parameter: values[one].shape[1] for one, parameter in layer.matrices().items()}
    inputs = {name: inputs_of(correlated(size)) for name, size in sizes.items()}
    layout = layout_of(Options("w8a8"), -1)
    norm = "model.layers.0.input_layernorm.weight"
    before = values[norm]
    found = scale_inputs(layer, values, inputs, layer.matrices(), layout, smoothing=0.5)
    name = "attention.qkv.weight"
    expected = inputs[name].largest / (before / values[norm])
    np.testing.assert_allclose(found[name].largest, expected, rtol=1e-5)
    assert found["attention.o.weight"] is inputs["attention.o.weight"]  # grouped queries


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scaling")
    (folder / "text").write_text(TEXT)
    return write_model(folder / "model", CONFIG | {"num_key_value_heads": 4})


CASES: dict[str, dict[str, Any]] = {
    "w4a16": {"format": "w4a16", "algorithm": "awq"},
    "awq": {"format": "awq", "algorithm": "awq"},
    "w8a8": {"format": "w8a8", "smoothing": 0.5},
}


@pytest.mark.parametrize("kind", CASES)
def test_a_whole_model(model: Path, tmp_path: Path, kind: str) -> None:
    """The norms are scaled, and what is stored is near the checkpoint's numbers with these."""
    config = CONFIG | {"num_key_value_heads": 4}
    text = str(model.parent / "text")
    options = CASES[kind] | {"calibration": text, "samples": 4, "sample_length": 32}
    out = quantized(model, tmp_path / "out", **options)
    expected = logits(model, PROMPT)
    found = logits(out, PROMPT)
    plain = logits(quantized(model, tmp_path / "rtn", format=kind), PROMPT)
    errors = [np.square(one - expected).mean() for one in (found, plain)]
    assert 0 < errors[0] < 1.1 * errors[1]
    weights = tiny.weights(config)
    stored = all_decoded(out, kind, config)
    read_by = {"input_layernorm": "self_attn.k_proj", "post_attention_layernorm": "mlp.up_proj"}
    largest = 0.0
    for layer, (norm, module) in itertools.product(range(2), read_by.items()):
        name, reader = (f"model.layers.{layer}.{part}.weight" for part in (norm, module))
        scales = weights[name] / SafetensorsSource(out).raw(name).astype(np.float32)
        largest = max(largest, np.abs(scales - 1).max())
        if module.startswith("self_attn"):  # up's rows are divided, too
            change = stored[reader] / scales - weights[reader]
            assert np.abs(change).max() < 0.2 * np.abs(weights[reader]).max()
    assert largest > 0.01


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"format": "w8a8", "algorithm": "awq"}, "algorithm 'awq' is for w4a16, gptq, awq, not"),
        ({"format": "w4a16", "smoothing": 0.5}, "smoothing is for format 'w8a8', not for 'w4a16'"),
        ({"format": "w8a8", "smoothing": 1.5}, "smoothing must be from 0 to 1, got 1.5"),
        ({"format": "awq", "algorithm": "AWQ"}, "algorithm 'AWQ' is not known"),
    ],
)
def test_options_that_do_not_go_together(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Options(**given)
