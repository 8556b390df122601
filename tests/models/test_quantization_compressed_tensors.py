"""Checkpoints of compressed-tensors: equal to the oracle's decoders, as numbers and as codes."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from jax_engine.errors import ConfigError, WeightsError
from jax_engine.weights.codes import INT8, Kind
from reference.quantization import compressed_tensors as oracle
from reference.quantization import smoothquant
from tests.models.quantised_files import GOLDEN, Tensors, module, opened, read, read_rows

N, K, GROUP = 24, 96, 32
NAME = "model.layers.0.mlp.up_proj"
DYNAMIC = {"num_bits": 8, "type": "int", "dynamic": True, "strategy": "token"}


def random_matrix(seed: int = 0, shape: tuple[int, int] = (N, K)) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def group_of(bits: int = 4, *, group: dict[str, Any] | None = None, **args: Any) -> dict[str, Any]:
    weights = {"num_bits": bits, "type": "int", "symmetric": True, "strategy": "group"}
    return {
        "targets": ["Linear"],
        "weights": weights | {"group_size": GROUP} | args,
        **(group or {}),
    }


def config(*groups: dict[str, Any], **more: Any) -> dict[str, Any]:
    named = {f"group_{number}": group for number, group in enumerate(groups)}
    whole = {"quant_method": "compressed-tensors", "format": "pack-quantized", "version": "0.20.0"}
    return whole | {"config_groups": named} | more


def packed(stored: oracle.Packed, name: str = NAME, **changed: Any) -> Tensors:
    parts: dict[str, Any] = stored._asdict() | changed
    if isinstance(parts["weight_shape"], tuple):
        parts["weight_shape"] = np.array(parts["weight_shape"])
    return module(name, parts)


def check(source: Any, expected: np.ndarray, name: str = NAME) -> Kind:
    np.testing.assert_array_equal(read(source, f"{name}.weight"), expected)
    np.testing.assert_array_equal(read_rows(source, f"{name}.weight"), expected)
    kind: Kind = source.kind(f"{name}.weight")
    return kind


@pytest.mark.parametrize("case", ["packed4", "packed4_zeros", "packed3_zeros", "packed8"])
def test_goldens_of_packed_codes(case: str, tmp_path: Path) -> None:
    with np.load(GOLDEN) as golden:
        parts = {
            name.partition("/")[2]: golden[name] for name in golden if name.startswith(f"{case}/")
        }
    weight, _ = parts.pop("weight"), parts.pop("x")
    symmetric, strategy = not case.endswith("zeros"), "channel" if case == "packed8" else "group"
    group = group_of(int(case[6]), symmetric=symmetric, strategy=strategy)
    source = opened(tmp_path, module(NAME, parts), config(group))
    np.testing.assert_array_equal(read(source, f"{NAME}.weight"), weight)
    if symmetric:
        check(source, weight)
    else:  # float32 scales: three roundings
        np.testing.assert_allclose(read_rows(source, f"{NAME}.weight"), weight, rtol=0, atol=1e-6)


@pytest.mark.parametrize("case", ["int8", "int8_zeros"])
def test_goldens_of_whole_codes(case: str, tmp_path: Path) -> None:
    with np.load(GOLDEN) as golden:
        parts = {"weight": golden[f"{case}/codes"], "weight_scale": golden[f"{case}/weight_scale"]}
        if case == "int8_zeros":
            parts["weight_zero_point"] = golden[f"{case}/weight_zero_point"]
        weight = golden[f"{case}/weight"]
    group = group_of(8, symmetric=case == "int8", strategy="channel")
    source = opened(tmp_path, module(NAME, parts), config(group, format="int-quantized"))
    np.testing.assert_array_equal(read(source, f"{NAME}.weight"), weight)
    np.testing.assert_allclose(read_rows(source, f"{NAME}.weight"), weight, rtol=0, atol=1e-6)


def in_bfloat16(scales: np.ndarray) -> np.ndarray:
    return np.asarray(scales.astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize("bits", range(2, 9))
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("whole_words", [True, False])
def test_packed_codes(bits: int, symmetric: bool, whole_words: bool, tmp_path: Path) -> None:
    shape = (160, 192)  # so many that the number of words tells how they are packed
    stored = oracle.quantise_packed(random_matrix(shape=shape), bits, GROUP, symmetric=symmetric)
    codes = oracle.unpack(stored.weight_packed, bits, shape[1])
    scale = in_bfloat16(stored.weight_scale)
    stored = stored._replace(
        weight_scale=scale, weight_packed=oracle.pack(codes, bits, whole_words=whole_words)
    )
    if not symmetric:
        zeros = oracle.unpack(stored.weight_zero_point.T, bits, shape[0])
        packed_zeros = oracle.pack(zeros, bits, whole_words=whole_words).T
        stored = stored._replace(weight_zero_point=np.ascontiguousarray(packed_zeros))
    expected = oracle.decode_packed(stored._replace(weight_scale=scale.astype(np.float32)), bits)
    group = group_of(bits, symmetric=symmetric)
    kind = check(opened(tmp_path, packed(stored), config(group, version=None)), expected)
    assert kind.minimums is not symmetric and kind.group == GROUP
    assert kind.bits == (4 if bits <= 4 else 8)
    assert kind.scale_dtype == ("float16" if symmetric else "float32")


def test_few_codes_need_the_version(tmp_path: Path) -> None:
    matrix = random_matrix(shape=(2, 20))  # two words either way
    stored = oracle.quantise_packed(matrix, 3, 20)
    expected, parts = oracle.decode_packed(stored, 3), packed(stored)
    group = group_of(3, group_size=20)
    check(opened(tmp_path, parts, config(group, version="0.20.1.a20261125")), expected)
    codes = oracle.unpack(stored.weight_packed, 3, 20)
    words = oracle.pack(codes, 3, whole_words=True)
    assert words.shape == stored.weight_packed.shape and (words != stored.weight_packed).any()
    parts = packed(stored, weight_packed=words)
    check(opened(tmp_path, parts, config(group, version="0.9.4")), expected)
    for unclear in ("0.10.2", "unknown", None):
        with pytest.raises(WeightsError, match=r"weight_packed: expected .* which may be either"):
            opened(tmp_path, parts, config(group, version=unclear))


@pytest.mark.parametrize("symmetric", [True, False])
def test_act_order(symmetric: bool, tmp_path: Path) -> None:
    stored = oracle.quantise_packed(random_matrix(), 4, GROUP, symmetric=symmetric)
    scale = in_bfloat16(stored.weight_scale).astype(np.float32)
    g_idx = np.random.default_rng(3).permutation(K).astype(np.int32) // GROUP
    stored = stored._replace(weight_scale=scale, weight_g_idx=g_idx)
    group = group_of(symmetric=symmetric, actorder="group")
    source = opened(tmp_path, packed(stored), config(group))
    check(source, oracle.decode_packed(stored, 4))
    order = source.order(f"{NAME}.weight")
    np.testing.assert_array_equal(order, np.argsort(g_idx, kind="stable"))
    unset = packed(stored, weight_g_idx=np.full(K, -1, np.int32))
    check(
        opened(tmp_path, unset, config(group)),
        oracle.decode_packed(stored._replace(weight_g_idx=None), 4),
    )


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("strategy", ["tensor", "channel", "group"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_whole_codes(bits: int, strategy: str, symmetric: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    shape = {"tensor": (1, 1), "channel": (N, 1), "group": (N, K // GROUP)}[strategy]
    codes = rng.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), (N, K), np.int8)
    zeros = rng.integers(-8, 8, shape, np.int8)
    scale = in_bfloat16(rng.random(shape, np.float32))
    whole = [np.broadcast_to(x, (N, shape[1])) for x in (scale.astype(np.float32), zeros)]
    expected = oracle.decode_integers(
        oracle.Integers(codes, whole[0], None if symmetric else whole[1])
    )
    parts: dict[str, Any] = {"weight": codes, "weight_scale": scale}
    if not symmetric:
        parts["weight_zero_point"] = zeros
    if strategy == "tensor":
        parts = {k: v.reshape(v.shape[: 2 if k == "weight" else 0]) for k, v in parts.items()}
    group = group_of(bits, strategy=strategy, symmetric=symmetric)
    source = opened(tmp_path, module(NAME, parts), config(group, format="int-quantized"))
    kind = check(source, expected)
    assert kind.code == INT8 and kind.group == (GROUP if strategy == "group" else K)
    assert kind.activations is None


def test_smoothquant_rounds_activations(tmp_path: Path) -> None:
    stored = smoothquant.quantise(random_matrix())
    parts = module(NAME, {"weight": stored.weight, "weight_scale": stored.weight_scale})
    for changed, expected in (
        ({}, "int8"),
        ({"dynamic": False, "strategy": "tensor"}, None),
        ({"num_bits": 4}, None),
        ({"symmetric": False}, None),
    ):
        group = group_of(8, strategy="channel", group={"input_activations": DYNAMIC | changed})
        source = opened(tmp_path, parts, config(group, format="int-quantized"))
        assert check(source, oracle.decode_integers(stored)).activations == expected


def test_targets_and_formats_of_groups(tmp_path: Path) -> None:
    names = ["layers.0.up", "layers.0.down", "layers.1.down", "lm_head"]
    stored = [oracle.quantise_packed(random_matrix(), bits, GROUP) for bits in (4, 8, 2)]
    whole = oracle.quantise_integers(random_matrix(), GROUP)
    tensors = module(names[3], {"weight": whole.weight, "weight_scale": whole.weight_scale})
    for name, one in zip(names, stored, strict=False):
        tensors |= packed(one, name)
    groups = (
        group_of(8, group={"targets": [r"re:.*\.0\.down$"]}),
        group_of(2, group={"targets": ["layers.1.down"]}),
        group_of(4),
        group_of(8, group={"targets": ["lm_head"], "format": "int-quantized"}),
    )
    source = opened(tmp_path, tensors, config(*groups, ignore=["gate", "re:.*norm"]))
    for name, bits, one in zip(names, (4, 8, 2), stored, strict=False):
        check(source, oracle.decode_packed(one, bits), name)
    check(source, oracle.decode_integers(whole), "lm_head")
    with pytest.raises(WeightsError, match=r"layers\.0\.up\.weight_packed .* no target"):
        opened(tmp_path, tensors, config(*groups[:2], groups[3]))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"format": "marlin-24"}, r"format 'marlin-24' is not supported; known: 'pack-quantized'"),
        ({"format": None}, r"format None is not supported"),
        ({"config_groups": None}, "config_groups must be a dictionary, got None"),
        ({"ignore": ["re:("]}, r"ignore must be a regular expression, got '\('"),
        ({"sparsity_config": {"format": "sparse-24"}}, "sparsity_config.format 'sparse-24'"),
        ({"transform_config": {"config_groups": {"R1": {}}}}, "transform_config.config_groups"),
    ],
)
def test_configurations_that_are_refused(wrong: Any, message: str, tmp_path: Path) -> None:
    parts = packed(oracle.quantise_packed(random_matrix(), 4, GROUP))
    opened(tmp_path, parts, config(group_of(), sparsity_config={"format": "dense"}))
    with pytest.raises(ConfigError, match=message):
        opened(tmp_path, parts, config(group_of()) | wrong)


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (group_of(9), r"config_groups.group_0.weights.num_bits 9 .* known: 2, 3, 4, 5, 6, 7, 8"),
        (group_of(type="float"), r"weights.type 'float' is not supported; known: 'int'"),
        (group_of(strategy="block"), "strategy 'block' .*'tensor', 'channel', 'group'"),
        (group_of(strategy="tensor", symmetric=False), "strategy 'tensor' .*'channel', 'group'"),
        (group_of(group_size=None), "group_size 0 is not supported"),
        (group_of(group={"weights": None}), r"config_groups\.group_0\.weights is missing"),
        (group_of(group={"targets": ["re:["]}), r"targets must be a regular expression"),
        (group_of(group={"format": "x"}), r"config_groups\.group_0\.format 'x' is not"),
        (group_of(group={"targets": 3}), r"config_groups\.group_0: targets must be a list, got 3"),
    ],
)
def test_groups_that_are_refused(group: Any, message: str, tmp_path: Path) -> None:
    parts = packed(oracle.quantise_packed(random_matrix(), 4, GROUP))
    with pytest.raises(ConfigError, match=message):
        opened(tmp_path, parts, config(group))


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("weight_packed", None, "weight_packed is missing"),
        ("weight_shape", None, "weight_shape is missing"),
        ("weight_scale", None, "weight_scale is missing"),
        ("weight_zero_point", None, "weight_zero_point is missing"),
        (
            "weight_shape",
            np.array([N, K + 8]),
            r"weight_packed: expected 104 codes .* 13 .*found 12",
        ),
        ("weight_shape", np.array([N + 1, K]), r"weight_packed: expected shape \(25, any\)"),
        ("weight_shape", np.array([2**40, 2**40]), "weight_packed: expected shape"),
        ("weight_shape", np.array([N, -1]), r"weight_shape: expected two sizes .*\(24, -1\)"),
        ("weight_shape", np.array([N, K, 1]), r"weight_shape: expected shape \(2,\)"),
        ("weight_shape", np.array([1.0, 2.0]), "weight_shape: expected dtype I64 or I32"),
        ("weight_scale", np.zeros((N, 4), np.float32), r"weight_scale: expected shape \(24, 3\)"),
        ("weight_zero_point", np.zeros((2, 3), np.int32), "24 codes of 4 bits, 3 or 3 words"),
        ("weight_g_idx", np.zeros(3, np.int32), r"weight_g_idx: expected shape \(96,\)"),
    ],
)
def test_parts_that_are_refused(part: str, value: Any, message: str, tmp_path: Path) -> None:
    stored = oracle.quantise_packed(random_matrix(), 4, GROUP, symmetric=False)
    parts = packed(stored, **{part: value})
    with pytest.raises(WeightsError, match=message) as caught:
        opened(tmp_path, parts, config(group_of(symmetric=False)))
    assert str(tmp_path / "model.safetensors") in str(caught.value)


def test_more_that_is_refused(tmp_path: Path) -> None:
    stored = oracle.quantise_packed(random_matrix(), 4, GROUP)
    with pytest.raises(WeightsError, match=r"weight_shape: expected a multiple of group_size 40"):
        opened(tmp_path, packed(stored), config(group_of(group_size=40)))
    wrong = packed(stored._replace(weight_g_idx=np.full(K, 3, np.int32)))
    with pytest.raises(WeightsError, match="weight_g_idx: expected groups from 0 to 2, found 3"):
        read(opened(tmp_path, wrong, config(group_of())), f"{NAME}.weight")
