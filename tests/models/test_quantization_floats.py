"""FP8, MXFP4 and NVFP4 in the layouts of their checkpoints: equal to the oracle's decoders."""

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors

from jax_engine.errors import ConfigError, WeightsError
from jax_engine.models.checkpoints.files_source import FilesSource
from jax_engine.models.checkpoints.quantization.quantized_source import open_quantized
from jax_engine.weights.codes import E4M3, Kind
from reference.quantization import fp8, mxfp4, nvfp4
from tests.models.quantised_files import GOLDEN, Stored, module, opened, read, read_rows, write_file

N, K = 40, 96
NAME = "model.layers.0.mlp.up_proj"
WEIGHT = f"{NAME}.weight"
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}


def random_matrix(seed: int = 0, shape: tuple[int, ...] = (N, K)) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def check(source: Any, expected: np.ndarray, name: str = WEIGHT) -> Kind:
    np.testing.assert_array_equal(read(source, name), expected)
    np.testing.assert_array_equal(read_rows(source, name), expected)
    kind: Kind = source.kind(name)
    return kind


def compressed(format_: str, strategy: str, **more: Any) -> dict[str, Any]:
    bits = 8 if format_ in ("float-quantized", "naive-quantized") else 4
    weights = {"num_bits": bits, "type": "float", "strategy": strategy, **more}
    group = {"targets": ["Linear"], "weights": weights}
    group["input_activations"] = {"num_bits": 8, "type": "float", "dynamic": True}
    return {
        "quant_method": "compressed-tensors",
        "format": format_,
        "config_groups": {"group_0": group},
    }


@pytest.mark.parametrize("block", [(12, 48), (128, 128), (1, 96)])
@pytest.mark.parametrize("end", ["weight_scale", "weight_scale_inv"])
def test_fp8_in_blocks(block: tuple[int, int], end: str, tmp_path: Path) -> None:
    stored = fp8.quantise(random_matrix(), block)
    parts = {"weight": Stored(stored.weight, "F8_E4M3"), end: stored.scale}
    quantization = FP8 | {"weight_block_size": list(block), "fmt": "e4m3"}
    source = opened(tmp_path, module(NAME, parts), quantization)
    kind = check(source, fp8.decode(stored))
    assert kind == Kind(E4M3, min(block[1], K), activations=E4M3)


def test_the_golden_of_blocks_and_of_outputs(tmp_path: Path) -> None:
    for case, strategy in (("fp8_block", "block"), ("fp8_channel", "channel")):
        with np.load(GOLDEN) as golden:
            parts: dict[str, Any] = {"weight": Stored(golden[f"{case}/codes"], "F8_E4M3")}
            parts["weight_scale"] = golden[f"{case}/scale"]
            expected = golden[f"{case}/weight"]
        quantization = compressed("float-quantized", strategy, block_structure=[12, 48])
        check(opened(tmp_path, module(NAME, parts), quantization), expected)


@pytest.mark.parametrize("method", ["fp8", "fbgemm_fp8", "modelopt", "float-quantized"])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (N,), (N, 1)])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_fp8_with_one_scale_or_one_each_output(
    method: str, shape: tuple[int, ...], dtype: Any, tmp_path: Path
) -> None:
    rows = N if shape in ((), (1,), (1, 1)) else 1
    stored = fp8.quantise(random_matrix(), (rows, K))
    scale = stored.scale.astype(dtype)
    parts = {"weight": Stored(stored.weight, "F8_E4M3"), "weight_scale": scale.reshape(shape)}
    quantization: dict[str, Any] = {"quant_method": method, "quant_algo": "FP8"}
    if method == "float-quantized":
        quantization = compressed(method, "tensor" if rows == N else "channel")
    source = opened(tmp_path, module(NAME, parts), quantization)
    kind = check(source, fp8.decode(stored._replace(scale=scale.astype(np.float32))))
    assert kind.code == E4M3 and kind.group == K and not kind.minimums
    assert kind.activations == (None if method == "modelopt" else E4M3)


SAFETENSORS = tuple(map(int, safetensors.__version__.split(".")[:2]))
E8M0 = pytest.param(
    "F8_E8M0", marks=pytest.mark.skipif(SAFETENSORS < (0, 6), reason="an unknown dtype before 0.6")
)


@pytest.mark.parametrize("dtype", ["U8", E8M0])
def test_every_code_and_every_power_of_two(dtype: str, tmp_path: Path) -> None:
    weight = np.tile(np.arange(256, dtype=np.uint8), (256, 1))
    scale = np.arange(256, dtype=np.uint8)[:, None]
    parts = {"weight": Stored(weight, "F8_E4M3"), "weight_scale": Stored(scale, dtype)}
    quantization = FP8 | {"weight_block_size": [1, 256], "scale_fmt": "ue8m0"}
    source = opened(tmp_path, module(NAME, parts), quantization)
    with np.errstate(all="ignore"):
        kind = check(source, fp8.decode(fp8.Tensors(weight, scale, (1, 256))))
    assert kind.scale_dtype == "float32"  # not all are float16 numbers


def test_scales_that_are_float16_numbers(tmp_path: Path) -> None:
    weight = Stored(fp8.quantise(random_matrix(), (N, K)).weight, "F8_E4M3")
    for scale, expected in ((2.0**-24, "float16"), (2.0**-25, "float32"), (0.1, "float32")):
        parts = {"weight": weight, "weight_scale": np.float32([scale])}
        assert opened(tmp_path, module(NAME, parts), FP8).kind(WEIGHT).scale_dtype == expected


def test_fp8_beside_plain_weights_and_static_activations(tmp_path: Path) -> None:
    stored = fp8.quantise(random_matrix(), (N, K))
    parts = {
        "weight": Stored(stored.weight, "F8_E4M3"),
        "weight_scale": stored.scale.reshape(()),
        "input_scale": np.float32([0.5]),
        "bias": np.ones(N, np.float32),
    }
    plain = {"model.norm.weight": np.ones(3, np.float16), "lm_head.weight": random_matrix()}
    quantization = {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["x"]}
    source = opened(tmp_path, module(NAME, parts) | plain, quantization)
    assert set(source.names()) == {*plain, WEIGHT, f"{NAME}.bias"}
    assert check(source, fp8.decode(stored)).activations is None
    np.testing.assert_array_equal(read(source, "lm_head.weight"), plain["lm_head.weight"])


@pytest.mark.parametrize("method", ["compressed-tensors", "modelopt"])
def test_nvfp4(method: str, tmp_path: Path) -> None:
    with np.load(GOLDEN) as golden:
        packed, scale = golden["nvfp4/weight_packed"], golden["nvfp4/weight_scale"]
        divisor, expected = golden["nvfp4/weight_global_scale"], golden["nvfp4/weight"]
    parts: dict[str, Any] = {"weight_scale": Stored(scale, "F8_E4M3")}
    if method == "modelopt":
        parts |= {"weight": packed, "weight_scale_2": np.float32(0.5)}
        tensors = nvfp4.Tensors(packed, scale, np.float32(2.0))
        expected = nvfp4.decode(tensors)
        quantization: dict[str, Any] = {"quant_method": method, "quant_algo": "NVFP4"}
    else:
        parts |= {"weight_packed": packed, "weight_global_scale": divisor}
        quantization = compressed("nvfp4-pack-quantized", "tensor_group", group_size=16)
    source = opened(tmp_path, module(NAME, parts), quantization)
    kind = check(source, expected)
    assert kind.group == 16 and kind.bits == 4 and kind.activations is None


def test_mxfp4_of_compressed_tensors(tmp_path: Path) -> None:
    with np.load(GOLDEN) as golden:
        parts = {name: golden[f"mxfp4/{name}"] for name in ("weight_packed", "weight_scale")}
        expected = golden["mxfp4/weight"]
    quantization = compressed("mxfp4-pack-quantized", "group", group_size=32)
    kind = check(opened(tmp_path, module(NAME, parts), quantization), expected)
    assert kind.group == 32 and kind.scale_dtype == "float16"


def test_mxfp4_of_gpt_oss(tmp_path: Path) -> None:
    matrix = random_matrix(shape=(3, N, K))
    matrix[1] *= 2.0**-40
    blocks, scales = mxfp4.quantise(matrix)
    name = "model.layers.0.mlp.experts.gate_up_proj"
    tensors = {f"{name}_blocks": blocks, f"{name}_scales": scales, f"{name}_bias": matrix[0]}
    source = opened(tmp_path, tensors, {"quant_method": "mxfp4"})
    assert set(source.names()) == {name, f"{name}_bias"}
    assert source.turned(name) and source.shape(name) == (3, K, N) and source.order(name) is None
    expected = mxfp4.decode(blocks, scales)
    np.testing.assert_array_equal(read(source, name), expected.swapaxes(1, 2))
    np.testing.assert_array_equal(read_rows(source, name), expected)
    assert source.kind(name).scale_dtype == "float32"  # of one expert
    wrong = tensors | {f"{name}_scales": scales[:2]}
    with pytest.raises(WeightsError, match=r"_scales: expected shape \(3, 40, 3\), found \(2, "):
        opened(tmp_path, wrong, {"quant_method": "mxfp4"})
    del wrong[f"{name}_scales"]
    with pytest.raises(WeightsError, match=f"{name}_scales is missing"):
        opened(tmp_path, wrong, {"quant_method": "mxfp4"})


@pytest.mark.parametrize(
    ("quantization", "message"),
    [
        (FP8 | {"activation_scheme": "x"}, "activation_scheme 'x' .*'dynamic', 'static'"),
        (FP8 | {"fmt": "e5m2"}, "fmt 'e5m2' is not supported; known: None, 'e4m3'"),
        (FP8 | {"scale_fmt": "x"}, "scale_fmt 'x' is not supported; known: None, 'ue8m0'"),
        (FP8 | {"weight_block_size": [128]}, "weight_block_size must be a list of length"),
        (FP8 | {"weight_block_size": [128, 0]}, r"weight_block_size\[1\] must be .* got 0"),
        ({"quant_method": "modelopt", "quant_algo": "W4A8"}, "quant_algo 'W4A8' .*'NVFP4'"),
        ({"quant_method": "modelopt"}, "quant_algo None is not supported"),
        (
            {"quant_method": "modelopt", "quantization": {"quant_algo": "INT4"}},
            "quant_algo 'INT4' is not supported",
        ),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 32},
            "group_size 32 is not supported; known: 16",
        ),
        (compressed("float-quantized", "group"), "strategy 'group' .*'channel', 'block'"),
        (compressed("float-quantized", "tensor", num_bits=4), "num_bits 4 is not .*known: 8"),
        (compressed("float-quantized", "tensor", symmetric=False), "symmetric False"),
        (compressed("float-quantized", "tensor", type="int"), "type 'int' is not .*'float'"),
        (compressed("float-quantized", "block"), "block_structure None .*two sizes from 1 on"),
        (compressed("nvfp4-pack-quantized", "group", group_size=32), "group_size 32 .*None, 16"),
        (compressed("mxfp4-pack-quantized", "group", group_size=16), "group_size 16 .*None, 32"),
    ],
)
def test_configurations_that_are_refused(
    quantization: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        opened(tmp_path, {"model.norm.weight": np.ones(3, np.float32)}, quantization)


E4M3_WEIGHT = Stored(np.zeros((N, K), np.uint8), "F8_E4M3")


@pytest.mark.parametrize(
    ("parts", "quantization", "message"),
    [
        ({"weight": E4M3_WEIGHT}, FP8, r"up_proj\.weight_scale is missing"),
        ({"weight_scale_inv": np.ones((1, 1), np.float32)}, FP8, r"up_proj\.weight is missing"),
        (
            {"weight": random_matrix(), "weight_scale": np.ones(1, np.float32)},
            FP8,
            "expected dtype F8_E4M3, found F32",
        ),
        (
            {"weight": Stored(np.zeros((N, K), np.uint8), "F8_E5M2")},
            FP8,
            "expected dtype F8_E4M3, found F8_E5M2",
        ),
        (
            {"weight": E4M3_WEIGHT, "weight_scale": np.ones((2, 2), np.float32)},
            FP8,
            r"weight_scale: expected shape \(\) or \(1,\) or .*found \(2, 2\)",
        ),
        (
            {"weight": E4M3_WEIGHT, "weight_scale_inv": np.ones((2, 1), np.float32)},
            FP8 | {"weight_block_size": [128, 128]},
            r"weight_scale_inv: expected shape \(1, 1\), found \(2, 1\)",
        ),
        (
            {"weight_packed": np.zeros((N, 20), np.uint8)},
            compressed("nvfp4-pack-quantized", "group"),
            "weight_packed: expected a multiple of 16 codes in a row, found 40",
        ),
        (
            {
                "weight_packed": np.zeros((N, 8), np.uint8),
                "weight_scale": Stored(np.zeros((N, 1), np.uint8), "F8_E4M3"),
                "weight_global_scale": np.zeros(2, np.float32),
            },
            compressed("nvfp4-pack-quantized", "group"),
            r"weight_global_scale: expected shape \(\) or \(1,\), found \(2,\)",
        ),
    ],
)
def test_parts_that_are_refused(
    parts: dict[str, Any], quantization: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(WeightsError, match=message):
        opened(tmp_path, module(NAME, parts), quantization)


def test_names_of_modelopts_methods(tmp_path: Path) -> None:
    packed, scale, divisor = nvfp4.quantise(random_matrix())
    parts = {"weight": packed, "weight_scale": Stored(scale, "F8_E4M3")}
    tensors = module(NAME, parts | {"weight_scale_2": 1 / divisor})
    four = {"quant_method": "modelopt", "quantization": {"quant_algo": "NVFP4"}}
    for name in (None, "modelopt", "modelopt_fp4", "nvfp4"):
        assert opened(tmp_path, tensors, four, name).kind(WEIGHT).bits == 4
    with pytest.raises(ConfigError, match=r"quantization='fp8'.*known: None or 'modelopt_fp4'"):
        opened(tmp_path, tensors, four, "fp8")
    eight = four | {"quantization": {"quant_algo": "FP8"}}
    with pytest.raises(ConfigError, match=r"quantization='nvfp4'.*known: None or 'modelopt'"):
        opened(tmp_path, tensors, eight, "nvfp4")


def test_modelopts_own_file(tmp_path: Path) -> None:
    stored = fp8.quantise(random_matrix(), (N, K))
    scale = stored.scale.reshape(())
    parts = {"weight": Stored(stored.weight, "F8_E4M3"), "weight_scale": scale}
    write_file(tmp_path / "model.safetensors", module(NAME, parts))
    plain = FilesSource(tmp_path)
    for algorithm in ("FP8", None):
        whole = {"quantization": {"quant_algo": algorithm, "kv_cache_quant_algo": "FP8"}}
        (tmp_path / "hf_quant_config.json").write_text(json.dumps(whole))
        source = open_quantized(plain, {})
        if algorithm is None:
            assert source is plain
        else:
            check(source, fp8.decode(stored))
    (tmp_path / "hf_quant_config.json").write_text("[]")
    with pytest.raises(WeightsError, match=r"hf_quant_config\.json must hold a JSON object"):
        open_quantized(plain, {})
