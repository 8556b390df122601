"""GPTQ's checkpoints: equal to the oracle's decoder bit by bit, as numbers and as rows of codes."""

import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from jax_engine.errors import ConfigError, WeightsError
from jax_engine.weights.codes import INT8, Kind
from reference.quantization import gptq
from tests.models.quantised_files import GOLDEN, Tensors, module, opened, read, read_rows

BITS = (2, 3, 4, 8)
N, K, GROUP = 32, 96, 32


def random_matrix(seed: int = 0, shape: tuple[int, int] = (N, K)) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def config(bits: int, **more: Any) -> dict[str, Any]:
    return {"quant_method": "gptq", "bits": bits, "group_size": GROUP, "sym": False} | more


def tensors_of(stored: gptq.Tensors, name: str = "model.layers.0.q_proj") -> Tensors:
    return module(name, stored._asdict())


def check(source: Any, expected: np.ndarray, name: str = "model.layers.0.q_proj.weight") -> Kind:
    np.testing.assert_array_equal(read(source, name), expected)
    np.testing.assert_array_equal(read_rows(source, name), expected)
    kind: Kind = source.kind(name)
    return kind


@pytest.mark.parametrize("bits", BITS)
def test_goldens_in_act_order(bits: int, tmp_path: Path) -> None:
    with np.load(GOLDEN) as golden:
        parts = {part: golden[f"gptq{bits}/{part}"] for part in gptq.Tensors._fields}
        weight = golden[f"gptq{bits}/weight"]
    source = opened(tmp_path, module("model.layers.0.q_proj", parts), config(bits))
    kind = check(source, weight)
    assert kind.group == GROUP and kind.minimums and kind.scale_dtype == "float32"
    order = source.order("model.layers.0.q_proj.weight")
    np.testing.assert_array_equal(order, np.argsort(parts["g_idx"], kind="stable"))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("group", [GROUP, K])
def test_zero_points(bits: int, version: int, group: int, tmp_path: Path) -> None:
    stored = gptq.quantise(random_matrix(), bits, group, version=version)
    more = {"format": "gptq_v2"} if version == 2 else {"checkpoint_format": "gptq"}
    size = -1 if group == K else group
    source = opened(tmp_path, tensors_of(stored), config(bits, **more, group_size=size))
    kind = check(source, gptq.decode(stored, bits, version=version))
    assert kind.bits == (8 if bits == 8 else 4) and kind.group == group
    assert source.order("model.layers.0.q_proj.weight") is None
    assert list(source.names()) == ["model.layers.0.q_proj.weight"]


@pytest.mark.parametrize("bits", BITS)
def test_symmetric_ones_have_no_minimums_and_any_qzeros(bits: int, tmp_path: Path) -> None:
    order = np.random.default_rng(1).permutation(K).astype(np.int32)
    stored = gptq.quantise(random_matrix(), bits, GROUP, symmetric=True, order=order)
    parts = tensors_of(stored)
    expected = gptq.decode(stored, bits)
    kind = check(opened(tmp_path, parts, config(bits, sym=True)), expected)
    assert not kind.minimums and kind.scale_dtype == "float16"
    assert kind.code == INT8 or kind.code[0] == -(2.0 ** (bits - 1))
    parts["model.layers.0.q_proj.qzeros"] = stored.qzeros + np.int32(0x01010101)
    check(opened(tmp_path, parts, config(bits, sym=True)), expected)
    del parts["model.layers.0.q_proj.qzeros"]
    check(opened(tmp_path, parts, config(bits, sym=True)), expected)


@pytest.mark.parametrize("bits", BITS)
def test_scales_in_bfloat16_are_exact_too(bits: int, tmp_path: Path) -> None:
    stored = gptq.quantise(random_matrix(), bits, GROUP)
    scales = (stored.scales.astype(np.float32) * 1e-12).astype(ml_dtypes.bfloat16)
    parts = tensors_of(stored._replace(scales=scales))
    check(opened(tmp_path, parts, config(bits)), gptq.decode(stored._replace(scales=scales), bits))


def test_a_group_that_ends_early_and_groups_of_unequal_sizes(tmp_path: Path) -> None:
    matrix = random_matrix(shape=(N, 64))
    whole = gptq.quantise(matrix, 4, 32)
    ends_early = whole._replace(g_idx=(np.arange(64) // 48).astype(np.int32))
    kind = check(
        opened(tmp_path, tensors_of(ends_early), config(4, group_size=48)),
        gptq.decode(ends_early, 4),
    )
    assert kind.group == 48
    unequal = whole._replace(g_idx=(np.arange(64) // 33).astype(np.int32))
    source = opened(tmp_path, tensors_of(unequal), config(4))
    name = "model.layers.0.q_proj.weight"
    assert source.kind(name) is None and source.order(name) is None
    np.testing.assert_array_equal(read(source, name), gptq.decode(unequal, 4))


def test_without_g_idx_groups_follow_each_other(tmp_path: Path) -> None:
    stored = gptq.quantise(random_matrix(), 4, GROUP)
    parts = tensors_of(stored)
    del parts["model.layers.0.q_proj.g_idx"]
    check(opened(tmp_path, parts, config(4)), gptq.decode(stored, 4))


def test_other_tensors_are_as_they_were(tmp_path: Path) -> None:
    stored = gptq.quantise(random_matrix(), 4, GROUP)
    plain = {
        "model.norm.weight": np.arange(3, dtype=np.float16),
        "lm_head.weight": np.ones((2, 3), ml_dtypes.bfloat16),
        "model.layers.0.q_proj.bias": np.arange(N, dtype=np.float32),
        "model.layers.0.self_attn.k_scale": np.float32([2.0]),
    }
    source = opened(tmp_path, tensors_of(stored) | plain, config(4))
    assert set(source.names()) == {*plain, "model.layers.0.q_proj.weight"}
    assert source.shape("lm_head.weight") == (2, 3) and source.kind("lm_head.weight") is None
    assert source.order("lm_head.weight") is None and not source.turned("lm_head.weight")
    np.testing.assert_array_equal(read(source, "model.norm.weight"), [0, 1, 2])
    assert source.raw("model.layers.0.self_attn.k_scale").tolist() == [2.0]
    assert "tensor model.norm.weight" in source.describe("model.norm.weight")
    assert "q_proj.qweight" in source.describe("model.layers.0.q_proj.weight")


def test_dynamic_settings_of_modules(tmp_path: Path) -> None:
    matrix = random_matrix()
    four, eight = gptq.quantise(matrix, 4, GROUP), gptq.quantise(matrix, 8, K, symmetric=True)
    parts = tensors_of(four, "layers.1.up") | tensors_of(eight, "layers.11.up")
    dynamic = {
        "-:.*down.*": {},
        r"+:layers\.11\..*": {"bits": 8, "group_size": -1, "sym": True},
        ".*11.*": {"bits": 2},
    }
    source = opened(tmp_path, parts, config(4, dynamic=dynamic, group_size=GROUP))
    check(source, gptq.decode(four, 4), "layers.1.up.weight")
    check(source, gptq.decode(eight, 8), "layers.11.up.weight")
    out_of_it = config(4, dynamic={r"-:layers\.1\.": {}})
    with pytest.raises(WeightsError, match=r"layers\.1\.up\.qweight.*dynamic"):
        opened(tmp_path, parts, out_of_it)


def test_gpt2_has_its_matrices_turned(tmp_path: Path) -> None:
    stored = gptq.quantise(random_matrix(), 4, GROUP)
    parts = tensors_of(stored, "h.0.attn.c_attn") | tensors_of(stored, "lm_head")
    source = opened(tmp_path, parts, config(4), model_type="gpt2")
    name, weight = "h.0.attn.c_attn.weight", gptq.decode(stored, 4)
    assert source.turned(name) and source.shape(name) == (K, N)
    np.testing.assert_array_equal(read(source, name), weight.T)
    np.testing.assert_array_equal(read_rows(source, name), weight)
    assert not source.turned("lm_head.weight")
    check(source, weight, "lm_head.weight")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"bits": 5}, r"quantization_config\.bits 5 is not supported; known: 2, 3, 4, 8"),
        ({"bits": "4"}, "bits must be an integer, got '4'"),
        ({"group_size": 0}, r"group_size 0 .*-1, or from 1 on"),
        ({"checkpoint_format": "marlin"}, "checkpoint_format 'marlin' .*'gptq', 'gptq_v2'"),
        ({"dynamic": {"+:x": {"bits": 5}}}, r"dynamic\['\+:x'\]\.bits 5"),
        ({"dynamic": {"x": {"sym": 1}}}, r"dynamic\['x'\]: sym must be true or false.*, got 1"),
        ({"dynamic": {"-:(": {}}}, r"dynamic must be a regular expression, got '\('"),
        ({"dynamic": {"a" * 2000: {}}}, "more than 1000 characters"),
        ({"quant_method": "gguf"}, "quant_method 'gguf' is not supported; known: gptq"),
        ({"quant_method": None}, "quant_method None is not supported"),
    ],
)
def test_configurations_that_are_refused(wrong: Any, message: str, tmp_path: Path) -> None:
    parts = tensors_of(gptq.quantise(random_matrix(), 4, GROUP))
    with pytest.raises(ConfigError, match=message):
        opened(tmp_path, parts, config(4) | wrong)


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("qweight", None, r"q_proj\.qzeros belongs to .*q_proj\.qweight is missing"),
        ("qzeros", None, r"q_proj\.qzeros is missing"),
        ("scales", None, r"q_proj\.scales is missing"),
        ("scales", np.zeros((2, N), np.float16), r"scales: expected shape \(3, 32\), found \(2, "),
        ("scales", np.zeros((3, N), np.int32), "expected dtype F16 or BF16 or F32, found I32"),
        ("qzeros", np.zeros((3, 5), np.int32), r"qzeros: expected shape \(3, 4\), found \(3, 5\)"),
        ("qweight", np.zeros((12, N), np.int64), "expected dtype I32, found I64"),
        ("qweight", np.zeros((0, N), np.int32), r"expected shape \(any, any\), found \(0, 32\)"),
        ("qweight", np.zeros(N, np.int32), r"expected shape \(any, any\), found \(32,\)"),
        ("g_idx", np.zeros(95, np.int32), r"g_idx: expected shape \(96,\), found \(95,\)"),
        ("weight", np.zeros((N, K), np.float16), "there are also quantised parts of this tensor"),
    ],
)
def test_parts_that_are_refused(part: str, value: Any, message: str, tmp_path: Path) -> None:
    parts = tensors_of(gptq.quantise(random_matrix(), 4, GROUP))
    parts.pop(f"model.layers.0.q_proj.{part}", None)
    with pytest.raises(WeightsError, match=message) as caught:
        opened(tmp_path, parts | module("model.layers.0.q_proj", {part: value}), config(4))
    assert str(tmp_path / "model.safetensors") in str(caught.value)


def test_values_that_are_refused_when_they_are_read(tmp_path: Path) -> None:
    stored = gptq.quantise(random_matrix(), 4, GROUP)
    name = "model.layers.0.q_proj.weight"
    for wrong in (-1, 3):
        g_idx = stored.g_idx.copy()
        g_idx[7] = wrong
        source = opened(tmp_path, tensors_of(stored._replace(g_idx=g_idx)), config(4))
        expected = f"g_idx: expected groups from 0 to 2, found {wrong}"
        with pytest.raises(WeightsError, match=expected):
            source.kind(name)
        with pytest.raises(WeightsError, match=expected):
            read(source, name)
    zeros = tensors_of(stored._replace(qzeros=np.full_like(stored.qzeros, -1)))
    with pytest.raises(WeightsError, match="qzeros: expected zero points from 0 to 15, found 16"):
        read(opened(tmp_path, zeros, config(4)), name)


def test_three_bits_need_whole_codes_in_a_column(tmp_path: Path) -> None:
    stored = gptq.quantise(random_matrix(), 3, GROUP)
    parts = tensors_of(stored._replace(qweight=stored.qweight[:8]))
    with pytest.raises(WeightsError, match=r"qweight: expected whole codes of .*\(8, 32\)"):
        opened(tmp_path, parts, config(3))


def test_the_users_method_and_the_checkpoints(tmp_path: Path) -> None:
    parts = tensors_of(gptq.quantise(random_matrix(), 4, GROUP))
    for same in (None, "gptq", "gptq_marlin"):
        opened(tmp_path, parts, config(4), same)
    with pytest.raises(ConfigError, match=r"'compressed-tensors'.*quant_method .* is 'gptq'"):
        opened(tmp_path, parts, config(4), "compressed-tensors")
    with pytest.raises(ConfigError, match="quantization 'int3' is not supported; known: gptq"):
        opened(tmp_path, parts, config(4), "int3")
    with pytest.raises(WeightsError, match=re.escape("no tensor is quantised")):
        opened(tmp_path, {"model.norm.weight": np.ones(3, np.float32)}, config(4))
