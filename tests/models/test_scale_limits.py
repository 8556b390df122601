"""Scales at the limits of their types: zero, the smallest, the largest, negative, and no number.

Files that are quantised from random matrices have scales in the middle of the range. Here each
format's scales are all that its type has, or those at its ends, and what is read is the oracle's.
"""

from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from jax_engine.models.checkpoints.gguf.gguf_file import GgufFile
from jax_engine.models.checkpoints.gguf.gguf_tensors import LAYOUTS, GgufTensors
from jax_engine.weights.codes import numbers, row_dtype
from reference.quantization import awq, compressed_tensors, fp8, gptq, mxfp4, nf4, nvfp4, squeezellm
from tests.models.quantised_files import Stored, module, nf4_parts, opened, read, read_rows
from tests.models.test_gguf import SCALES
from tests.models.test_quantization_floats import compressed

NAME = "model.layers.0.mlp.up_proj"
WEIGHT = f"{NAME}.weight"
N, K, GROUP = 32, 96, 32
# float16: zero, the smallest number, the smallest with all its digits, the largest.
HALVES = np.float16([0.0, 2.0**-24, 2.0**-14, 1.0, -0.5, 65504.0, -65504.0, -(2.0**-24)])
# Scales times zero points must be numbers: rows of codes hold such products as minimums.
BRAINS = np.array([0.0, 2.0**-133, 2.0**-126, 1.0, -0.5, 2.0**118, -(2.0**118)], ml_dtypes.bfloat16)
FLOATS = np.float32([0.0, 2.0**-149, 2.0**-126, 1.0, -0.5, 2.0**118, -(2.0**118)])


def random_matrix(shape: tuple[int, int] = (N, K)) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def check(source: Any, expected: np.ndarray, name: str = WEIGHT) -> None:
    """Compares a weight as numbers, and as rows of codes."""
    np.testing.assert_array_equal(read(source, name), expected)
    np.testing.assert_array_equal(read_rows(source, name), expected)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("symmetric", [False, True])
def test_gptq(bits: int, symmetric: bool, tmp_path: Path) -> None:
    stored = gptq.quantise(random_matrix(), bits, GROUP, symmetric=symmetric)
    stored = stored._replace(scales=np.resize(HALVES, stored.scales.shape))
    config = {"quant_method": "gptq", "bits": bits, "group_size": GROUP, "sym": symmetric}
    check(opened(tmp_path, module(NAME, stored._asdict()), config), gptq.decode(stored, bits))


@pytest.mark.parametrize("scales", [HALVES, BRAINS], ids=["float16", "bfloat16"])
def test_awq(scales: np.ndarray, tmp_path: Path) -> None:
    stored = awq.quantise(random_matrix(), GROUP)
    stored = stored._replace(scales=np.resize(scales, stored.scales.shape))
    config = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"}
    source = opened(tmp_path, module(NAME, stored._asdict()), config | {"zero_point": True})
    with np.errstate(over="ignore"):
        check(source, awq.decode(stored))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [False, True])
def test_packed_codes_of_compressed_tensors(bits: int, symmetric: bool, tmp_path: Path) -> None:
    stored = compressed_tensors.quantise_packed(random_matrix(), bits, GROUP, symmetric=symmetric)
    stored = stored._replace(weight_scale=np.resize(FLOATS, stored.weight_scale.shape))
    weights = {"num_bits": bits, "type": "int", "strategy": "group", "group_size": GROUP}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights | {"symmetric": symmetric}}}
    config = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
    parts = stored._asdict() | {"weight_shape": np.int64(stored.weight_shape)}
    source = opened(tmp_path, module(NAME, parts), config | {"config_groups": groups})
    with np.errstate(over="ignore"):
        check(source, compressed_tensors.decode_packed(stored, bits))


def test_codes_of_one_byte_with_a_scale_for_each_output(tmp_path: Path) -> None:
    stored = compressed_tensors.quantise_integers(random_matrix(), K)
    stored = stored._replace(weight_scale=np.resize(FLOATS, stored.weight_scale.shape))
    weights = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    config = {"quant_method": "compressed-tensors", "format": "int-quantized"}
    source = opened(tmp_path, module(NAME, stored._asdict()), config | {"config_groups": groups})
    check(source, compressed_tensors.decode_integers(stored))


@pytest.mark.parametrize("block", [(1, K), (8, 48)], ids=["outputs", "blocks"])
def test_every_code_of_fp8(block: tuple[int, int], tmp_path: Path) -> None:
    codes = np.resize(np.arange(256, dtype=np.uint8), (N, K))
    scales = np.resize(FLOATS, (N // block[0], K // block[1]))
    parts = {"weight": Stored(codes, "F8_E4M3"), "weight_scale": scales}
    config: dict[str, Any] = {"quant_method": "fp8", "activation_scheme": "dynamic"}
    if block[1] < K:
        config["weight_block_size"] = list(block)
    with np.errstate(all="ignore"):
        expected = fp8.decode(fp8.Tensors(codes, scales, block))
        check(opened(tmp_path, module(NAME, parts), config), expected)


@pytest.mark.parametrize("nested", [False, True])
def test_nf4(nested: bool, tmp_path: Path) -> None:
    stored = nf4.quantise(random_matrix((256, 128)), nested=nested)
    if stored.nested is None:
        stored = stored._replace(absmax=np.resize(FLOATS, stored.absmax.shape))
    else:  # codes of all scales, and all kinds of factors of codes
        inner = stored.nested._replace(absmax=np.resize(FLOATS, stored.nested.absmax.shape))
        codes = np.resize(np.arange(256, dtype=np.uint8), stored.absmax.shape)
        stored = stored._replace(absmax=codes, nested=inner)
    config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    check(opened(tmp_path, module(NAME, nf4_parts(stored)), config), nf4.decode(stored))


@pytest.mark.parametrize("bits", [3, 4])
@pytest.mark.parametrize("numbers", [HALVES, FLOATS], ids=["float16", "float32"])
def test_tables_of_squeezellm(bits: int, numbers: np.ndarray, tmp_path: Path) -> None:
    stored = squeezellm.quantise(random_matrix(), bits)
    stored = stored._replace(lookup_table=np.resize(numbers, stored.lookup_table.shape))
    source = opened(
        tmp_path, module(NAME, stored._asdict()), {"quant_method": "squeezellm", "wbits": bits}
    )
    np.testing.assert_array_equal(read(source, WEIGHT), squeezellm.decode(stored, bits))


@pytest.mark.parametrize("divisor", [2.0**-100, 1.0, 2.0**100, 3.0e38])
def test_every_scale_of_nvfp4(divisor: float, tmp_path: Path) -> None:
    codes = np.tile(np.arange(256, dtype=np.uint8), (256, 1))
    scales = np.arange(256 * 32, dtype=np.uint16).astype(np.uint8).reshape(256, 32)
    tensors = nvfp4.Tensors(codes, scales, np.float32(divisor))
    parts = {
        "weight_packed": codes,
        "weight_scale": Stored(scales, "F8_E4M3"),
        "weight_global_scale": np.float32([divisor]),
    }
    config = compressed("nvfp4-pack-quantized", "tensor_group", group_size=16)
    with np.errstate(all="ignore"):
        check(opened(tmp_path, module(NAME, parts), config), nvfp4.decode(tensors))


def test_every_scale_of_mxfp4(tmp_path: Path) -> None:
    blocks = np.tile(np.arange(256, dtype=np.uint8), (256, 1))
    scales = np.arange(256 * 16, dtype=np.uint16).astype(np.uint8).reshape(256, 16)
    parts = {"weight_packed": blocks, "weight_scale": scales}
    config = compressed("mxfp4-pack-quantized", "group", group_size=32)
    with np.errstate(all="ignore"):
        expected = mxfp4.decode(blocks.reshape(256, 16, 16), scales)
        check(opened(tmp_path, module(NAME, parts), config), expected)


@pytest.mark.parametrize("name", LAYOUTS)
def test_blocks_of_gguf(name: str, tmp_path: Path) -> None:
    """All other bytes are random, or the smallest, or the largest: those of inner scales, too."""
    kind = GGMLQuantizationType[name]
    block, num_bytes = GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(kind)
    blocks = rng.integers(0, 256, (len(HALVES), 512 // block, num_bytes), np.uint8)
    blocks = np.concatenate([blocks, np.zeros_like(blocks), np.full_like(blocks, 0xFF)])
    places = SCALES.get(name, (0, 2) if name.endswith("_1") else (0,))
    for turn, at in enumerate(places):
        halves = np.resize(np.roll(HALVES, turn), (*blocks.shape[:2], 1))
        blocks[..., at : at + 2] = halves.view(np.uint8).reshape(*blocks.shape[:2], 2)
    raw = blocks.reshape(len(blocks), -1)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("w", raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tensors = GgufTensors(GgufFile(tmp_path / "m.gguf"))
    out = np.empty(len(raw), row_dtype(tensors.kinds(), 512))
    with np.errstate(all="ignore"):
        tensors.read_into("w", out)
        found, expected = numbers(out, tensors.kinds()), dequantize(raw, kind)
    np.testing.assert_array_equal(found, expected.reshape(found.shape))
