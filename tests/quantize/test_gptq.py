"""GPTQ: against the method's definition, and against rounding, on inputs that are correlated."""

from pathlib import Path

import numpy as np
import pytest

from jax_engine.errors import WeightsError
from jax_engine.models.checkpoints.files_source import FilesSource
from jax_engine.models.model_loader import load_model
from jax_engine.quantize.calibration import Calibrator, calibration_tokens, pieces
from jax_engine.quantize.float_model import open_float_model
from jax_engine.quantize.options import Options
from jax_engine.quantize.rounding import Floats, Grid, Steps, round_to_nearest, solve
from jax_engine.quantize.run import make_plan, shard_names
from reference.quantization.gptq import Tensors, decode
from tests.golden import tiny_checkpoints as tiny
from tests.models.paged import PagedRun
from tests.models.test_decoder import TOLERANCE, reference_logits
from tests.quantize.models import CONFIG, PROMPT, all_decoded, parts_of, quantized, write_model

TEXT = "The quick brown fox jumps over the lazy dog, and then it sleeps. " * 12
RNG = np.random.default_rng(5)
MATRIX = RNG.standard_normal((24, 192)).astype(np.float32)
MIXED = RNG.standard_normal((192, 192)) * np.exp(RNG.standard_normal(192))
INPUTS = (RNG.standard_normal((600, 192)) @ MIXED).astype(np.float32)
HESSIAN = INPUTS.T.astype(np.float64) @ INPUTS


def by_definition(grid: Grid, group: int, damping: float) -> np.ndarray:
    """Codes by the inverse Hessian of the columns that are left, updated after each."""
    left = MATRIX.astype(np.float64)
    inverse = np.linalg.inv(HESSIAN + damping * HESSIAN.diagonal().mean() * np.eye(192))
    codes = np.empty(MATRIX.shape, np.uint8)
    for column in range(192):
        if column % group == 0:
            shared = grid.choose(left[:, column : column + group].astype(np.float32))
        here = left[:, column : column + 1].astype(np.float32)
        codes[:, column] = grid.encode(here, shared)[:, 0]
        error = here - grid.decode(codes[:, column : column + 1], shared)
        left[:, column + 1 :] -= error / inverse[0, 0] * inverse[0, 1:]
        inverse = inverse[1:, 1:] - np.outer(inverse[1:, 0], inverse[0, 1:]) / inverse[0, 0]
    return codes


def output_error(found: np.ndarray) -> float:
    return float(np.square(INPUTS @ (found - MATRIX).T).mean())


@pytest.mark.parametrize("group", [32, 48, 192])  # blocks of 128, 48 and 128 columns
@pytest.mark.parametrize("grid", [Steps(4), Steps(4, symmetric=False), Floats()], ids=str)
def test_codes_are_those_of_the_definition(grid: Grid, group: int) -> None:
    found = solve(MATRIX, HESSIAN, grid, group, damping=0.01, act_order=False)
    wrong = (found.codes != by_definition(grid, group, 0.01)).mean()
    assert wrong < (0.03 if isinstance(grid, Floats) else 0.002)  # float32 decides ties otherwise


@pytest.mark.parametrize("act_order", [False, True])
def test_the_error_of_outputs_is_below_that_of_rounding(act_order: bool) -> None:
    grid = Steps(4)
    rounded = output_error(round_to_nearest(MATRIX, grid, 32).numbers(grid))
    coded = solve(MATRIX, HESSIAN, grid, 32, damping=0.01, act_order=act_order)
    assert output_error(coded.numbers(grid)) < (0.3 if act_order else 0.65) * rounded


def test_inputs_that_have_nothing_to_do_with_each_other_are_rounded() -> None:
    """Also inputs that never occur."""
    grid, diagonal = Steps(4), np.diag(np.arange(192.0))
    coded = solve(MATRIX, diagonal, grid, 64, damping=0.01, act_order=False)
    for found, expected in zip(coded, round_to_nearest(MATRIX, grid, 64), strict=True):
        np.testing.assert_array_equal(found, expected)
    ordered = solve(MATRIX, diagonal, grid, 64, damping=0.01, act_order=True)
    assert ordered.groups.tolist() == [2] * 64 + [1] * 64 + [0] * 64


def test_a_hessian_that_is_not_finite_is_refused() -> None:
    with pytest.raises(WeightsError, match="not finite"):
        solve(MATRIX, HESSIAN * np.nan, Steps(4), 32, damping=0.01, act_order=False)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gptq")
    (folder / "text").write_text(TEXT)
    return write_model(folder / "model")


def options_of(model: Path) -> Options:
    text = str(model.parent / "text")
    settings = {"samples": 5, "sample_length": 48, "algorithm": "gptq", "act_order": True}
    return Options("gptq", calibration=text, **settings)  # type: ignore[arg-type]


def test_a_whole_model(model: Path, tmp_path: Path) -> None:
    """Samples pass the quantised layers as in the oracle, and the loader reads what is written."""
    options = options_of(model)
    out = quantized(model, tmp_path / "out", **vars(options))
    weights = all_decoded(out, "gptq")
    expected = reference_logits(CONFIG, PROMPT, weights)
    loaded = load_model(str(out))
    found = PagedRun(loaded.config, loaded.graphdef, loaded.params).feed(PROMPT)
    np.testing.assert_allclose(found, expected, **TOLERANCE)

    opened = open_float_model(str(model))
    layout = make_plan(opened, options).layout
    calibrator = Calibrator(opened, options, layout.grid, layout.group, layout.config(()), ())
    tokens = calibration_tokens(model, options, 64)
    for layer, name in zip(opened.layers, shard_names(3), strict=False):
        calibrator.advance(layer, out / name)
    for stream, piece in zip(calibrator.streams, tokens, strict=True):
        normed = stream / np.sqrt(np.square(stream).mean(-1, keepdims=True) + 1e-5)
        logits = normed * weights["model.norm.weight"] @ weights["lm_head.weight"].T
        wanted = reference_logits(CONFIG, piece.tolist(), weights)
        np.testing.assert_allclose(logits, wanted, **TOLERANCE)


def test_the_inputs_of_the_first_product_are_normed_embeddings(model: Path) -> None:
    options, weights = options_of(model), tiny.weights(CONFIG)
    opened = open_float_model(str(model))
    layout = make_plan(opened, options).layout
    calibrator = Calibrator(opened, options, layout.grid, layout.group, layout.config(()), ())
    embedded = weights["model.embed_tokens.weight"][calibration_tokens(model, options, 64)]
    x = embedded / np.sqrt(np.square(embedded).mean(-1, keepdims=True) + 1e-5)
    x = (x * weights["model.layers.0.input_layernorm.weight"]).reshape(-1, 64)
    name = "model.layers.0.self_attn.k_proj.weight"
    coded = calibrator.prepared(opened.layers[0]).code(name, weights[name])
    wanted = solve(weights[name], x.T @ x, layout.grid, 32, damping=0.01, act_order=True)
    stored = Tensors(**layout.parts(coded)), Tensors(**layout.parts(wanted))
    np.testing.assert_array_equal(stored[0].g_idx, stored[1].g_idx)
    np.testing.assert_allclose(decode(stored[0], 4), decode(stored[1], 4), atol=1e-3)


def test_matrices_with_the_same_inputs_share_their_order(model: Path, tmp_path: Path) -> None:
    out = quantized(model, tmp_path / "out", **vars(options_of(model)))
    orders = [
        parts_of(out, f"model.layers.0.self_attn.{name}")["g_idx"]
        for name in ("q_proj", "k_proj", "v_proj")
    ]
    assert (orders[0] == orders[1]).all() and (orders[0] == orders[2]).all()
    assert (np.diff(orders[0]) < 0).any()
    assert "model.layers.0.mlp.down_proj.g_idx" in FilesSource(out).names()


def test_pieces_are_drawn_by_the_seed() -> None:
    tokens = np.arange(100, dtype=np.int32)

    def drawn(seed: int) -> list[int]:
        options = Options("gptq", samples=3, sample_length=10, seed=seed)
        found = pieces(tokens, options, 64)
        assert found.shape == (3, 10)
        assert (np.diff(found) == 1).all() and (found[:, 0] % 10 == 0).all()
        return found[:, 0].tolist()

    assert drawn(0) == drawn(0) and len({*map(tuple, map(drawn, range(8)))}) > 1
    assert drawn(0) == sorted(drawn(0))
