"""Matrices of any shape and any codes, as checkpoints have them, against the oracle's decoders."""

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reference.quantization import compressed_tensors, fp8, gptq, nf4, nvfp4
from tests.models.quantised_files import Stored, Tensors, module, opened, read, read_rows

NAME = "layers.0.up"
WEIGHT = f"{NAME}.weight"
outputs, seeds = st.integers(1, 40), st.integers(0, 2**32 - 1)


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("shapes")

    def check(tensors: Tensors, config: dict[str, Any], expected: np.ndarray) -> None:
        source = opened(directory, tensors, config)
        np.testing.assert_array_equal(read(source, WEIGHT), expected)
        if source.kind(WEIGHT) is not None:
            np.testing.assert_array_equal(read_rows(source, WEIGHT), expected)

    return check


def words(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return np.asarray(rng.integers(-(2**31), 2**31, shape, np.int64).astype(np.int32))


@given(
    seed=seeds,
    bits=st.sampled_from([2, 3, 4, 8]),
    rows=outputs,
    columns=st.integers(1, 4),
    group=st.integers(1, 150),
    act_order=st.booleans(),
    symmetric=st.booleans(),
)
@example(seed=0, bits=4, rows=1, columns=1, group=150, act_order=False, symmetric=False)
def test_gptq(
    check: Any,
    seed: int,
    bits: int,
    rows: int,
    columns: int,
    group: int,
    act_order: bool,
    symmetric: bool,
) -> None:
    rng, size = np.random.default_rng(seed), 32 * columns
    group = min(group, size)
    groups = -(-size // group)
    g_idx = (np.arange(size) // group).astype(np.int32)
    zeros = rng.integers(0, 2**bits, (groups, 64), np.int16)  # a whole word for the oracle
    if symmetric:
        zeros[...] = 2 ** (bits - 1)
    stored = gptq.pack(
        rng.integers(0, 2**bits, (size, 64)).astype(np.uint8),
        zeros,
        rng.standard_normal((groups, 64)).astype(np.float16),
        rng.permutation(g_idx) if act_order else g_idx,
        bits,
        version=2,
    )
    expected = gptq.decode(stored, bits, version=2)[:rows]
    stored = stored._replace(
        qweight=stored.qweight[:, :rows],
        qzeros=stored.qzeros[:, : -(-rows * bits // 32)],
        scales=stored.scales[:, :rows],
    )
    config = {"bits": bits, "group_size": group, "sym": symmetric, "checkpoint_format": "gptq_v2"}
    check(module(NAME, stored._asdict()), {"quant_method": "gptq", **config}, expected)


@given(
    seed=seeds,
    bits=st.integers(2, 8),
    rows=outputs,
    groups=st.integers(1, 5),
    group=st.integers(1, 40),
    symmetric=st.booleans(),
    whole=st.booleans(),
)
def test_packed_codes(
    check: Any,
    seed: int,
    bits: int,
    rows: int,
    groups: int,
    group: int,
    symmetric: bool,
    whole: bool,
) -> None:
    rng, least = np.random.default_rng(seed), -(2 ** (bits - 1))
    codes = rng.integers(least, -least, (rows, groups * group)).astype(np.int8)
    zeros = rng.integers(least, -least, (rows, groups)).astype(np.int8)
    scales = rng.standard_normal((rows, groups)).astype(ml_dtypes.bfloat16)
    expected = compressed_tensors.decode_integers(
        compressed_tensors.Integers(codes, scales.astype(np.float32), None if symmetric else zeros)
    )
    packed_zeros = compressed_tensors.pack(zeros.T, bits, whole_words=whole).T
    parts = {
        "weight_packed": compressed_tensors.pack(codes, bits, whole_words=whole),
        "weight_scale": scales,
        "weight_shape": np.array(codes.shape),
        "weight_zero_point": None if symmetric else packed_zeros,
    }
    weights = {"num_bits": bits, "group_size": group, "symmetric": symmetric}
    config = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "version": "0.9.1" if whole else "0.21.0",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }
    check(module(NAME, parts), config, expected)


@given(seed=seeds, rows=outputs, columns=st.integers(1, 80), block=st.tuples(outputs, outputs))
def test_fp8_in_blocks(
    check: Any, seed: int, rows: int, columns: int, block: tuple[int, int]
) -> None:
    rng = np.random.default_rng(seed)
    weight = rng.integers(0, 256, (rows, columns), np.uint8)
    scale = rng.standard_normal((-(-rows // block[0]), -(-columns // block[1])), np.float32)
    parts = {"weight": Stored(weight, "F8_E4M3"), "weight_scale_inv": scale}
    config = {"quant_method": "fp8", "weight_block_size": list(block)}
    check(module(NAME, parts), config, fp8.decode(fp8.Tensors(weight, scale, block)))


@given(seed=seeds, rows=outputs, blocks=st.integers(1, 5))
def test_nvfp4(check: Any, seed: int, rows: int, blocks: int) -> None:
    rng = np.random.default_rng(seed)
    packed = rng.integers(0, 256, (rows, 8 * blocks), np.uint8)
    scale = rng.integers(0, 127, (rows, blocks), np.uint8)
    divisor = np.float32(rng.uniform(0.1, 1000))
    parts = {
        "weight_packed": packed,
        "weight_scale": Stored(scale, "F8_E4M3"),
        "weight_global_scale": divisor,
    }
    weights = {"num_bits": 4, "type": "float"}
    config = {
        "quant_method": "compressed-tensors",
        "format": "nvfp4-pack-quantized",
        "config_groups": {"group_0": {"targets": [NAME], "weights": weights}},
    }
    check(module(NAME, parts), config, nvfp4.decode(nvfp4.Tensors(packed, scale, divisor)))


@given(seed=seeds, rows=outputs, columns=st.integers(1, 200), nested=st.booleans())
@example(seed=0, rows=3, columns=64, nested=True)
@example(seed=0, rows=3, columns=1, nested=False)
def test_nf4(check: Any, seed: int, rows: int, columns: int, nested: bool) -> None:
    matrix = np.random.default_rng(seed).standard_normal((rows, columns), np.float32)
    stored = nf4.quantise(matrix, nested=nested)
    state: dict[str, Any] = {"blocksize": 64, "shape": [rows, columns]}
    parts: dict[str, Any] = {
        "weight": stored.weight,
        "weight.absmax": stored.absmax,
        "weight.quant_map": stored.quant_map,
    }
    if stored.nested is not None:
        parts["weight.nested_absmax"] = stored.nested.absmax
        parts["weight.nested_quant_map"] = stored.nested.quant_map
        state |= {"nested_blocksize": 256, "nested_offset": float(stored.nested.offset)}
    text = np.frombuffer(json.dumps(state).encode(), np.uint8)
    tensors = module(NAME, parts | {"weight.quant_state.bitsandbytes__nf4": text})
    check(tensors, {"quant_method": "bitsandbytes", "load_in_4bit": True}, nf4.decode(stored))
