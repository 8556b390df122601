"""AWQ, bitsandbytes and SqueezeLLM: equal to the oracle's decoders, as numbers and as codes."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from jax_engine.errors import ConfigError, WeightsError
from jax_engine.weights.codes import Kind
from reference.quantization import awq, nf4, squeezellm
from tests.models.quantised_files import (
    GOLDEN,
    Tensors,
    module,
    nf4_parts,
    opened,
    read,
    read_rows,
    state_of,
)

N, K, GROUP = 24, 96, 32
NAME = "model.layers.0.mlp.up_proj"
WEIGHT = f"{NAME}.weight"
AWQ = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}
BNB = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}


def random_matrix(seed: int = 0, shape: tuple[int, int] = (N, K)) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def check(source: Any, expected: np.ndarray) -> Kind:
    np.testing.assert_array_equal(read(source, WEIGHT), expected)
    np.testing.assert_array_equal(read_rows(source, WEIGHT), expected)
    kind: Kind = source.kind(WEIGHT)
    return kind


def test_the_golden_of_awq(tmp_path: Path) -> None:
    with np.load(GOLDEN) as golden:
        parts = {part: golden[f"awq/{part}"] for part in awq.Tensors._fields}
        weight = golden["awq/weight"]
    kind = check(opened(tmp_path, module(NAME, parts), AWQ), weight)
    assert kind.group == GROUP and kind.minimums and kind.code[15] == 15


@pytest.mark.parametrize("group", [GROUP, K])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_awq(group: int, dtype: Any, tmp_path: Path) -> None:
    stored = awq.quantise(random_matrix(), group)
    stored = stored._replace(scales=stored.scales.astype(dtype))
    size = -1 if group == K else group
    newer = AWQ | {"group_size": size, "modules_to_not_convert": ["lm_head"]}
    older = {"quant_method": "awq", "w_bit": 4, "q_group_size": size, "version": "GEMM"}
    for quantization in (newer, older):
        for wanted in (None, "awq", "awq_marlin"):
            source = opened(tmp_path, module(NAME, stored._asdict()), quantization, wanted)
            assert check(source, awq.decode(stored)).group == group


def in_bitsandbytes(stored: nf4.Tensors, **changed: Any) -> Tensors:
    return module(NAME, nf4_parts(stored) | changed)


@pytest.mark.parametrize("nested", [False, True])
def test_nf4(nested: bool, tmp_path: Path) -> None:
    stored = nf4.quantise(random_matrix(shape=(200, 128)), nested=nested)
    source = opened(tmp_path, in_bitsandbytes(stored), BNB)
    kind = check(source, nf4.decode(stored))
    assert kind.code == tuple(nf4.NF4.tolist()) and kind.group == 64 and not kind.minimums


@pytest.mark.parametrize("nested", [False, True])
def test_goldens_of_nf4_whose_rows_are_no_whole_blocks(nested: bool, tmp_path: Path) -> None:
    case = "nf4_nested" if nested else "nf4"
    with np.load(GOLDEN) as golden:
        parts = {name: golden[f"{case}/{name}"] for name in ("codes", "absmax", "quant_map")}
        weight, inner = golden[f"{case}/weight"], None
        if nested:
            names = ("absmax", "quant_map", "offset")
            inner = nf4.Nested(*(golden[f"{case}/nested_{name}"] for name in names))
    stored = nf4.Tensors(*parts.values(), weight.shape, inner)
    source = opened(tmp_path, in_bitsandbytes(stored), BNB)
    np.testing.assert_array_equal(read(source, WEIGHT), nf4.decode(stored))
    np.testing.assert_allclose(read(source, WEIGHT), weight, rtol=1e-6)
    assert source.kind(WEIGHT) is None and source.order(WEIGHT) is None
    with pytest.raises(TypeError, match="no rows of codes"):
        source.read_into(WEIGHT, np.empty(6, [("codes", "u1", 67)]))


def test_blocks_that_reach_into_the_next_row(tmp_path: Path) -> None:
    stored = nf4.quantise(random_matrix(shape=(4, 96)))
    source = opened(tmp_path, in_bitsandbytes(stored), BNB)
    assert source.kind(WEIGHT) is None
    np.testing.assert_array_equal(read(source, WEIGHT), nf4.decode(stored))


def test_fp4_has_a_table_of_its_own(tmp_path: Path) -> None:
    stored = nf4.quantise(random_matrix(shape=(4, 128)))
    stored = stored._replace(quant_map=np.linspace(-1, 2, 16, dtype=np.float32))
    tensors = in_bitsandbytes(stored)
    state = tensors.pop(f"{NAME}.weight.quant_state.bitsandbytes__nf4")
    tensors[f"{NAME}.weight.quant_state.bitsandbytes__fp4"] = state
    source = opened(tmp_path, tensors, BNB | {"bnb_4bit_quant_type": "fp4"})
    check(source, nf4.decode(stored))


def in_squeezellm(stored: squeezellm.Tensors, **changed: Any) -> Tensors:
    return module(NAME, stored._asdict() | changed)


@pytest.mark.parametrize("bits", [3, 4])
@pytest.mark.parametrize("outliers", [0, 3])
def test_squeezellm(bits: int, outliers: int, tmp_path: Path) -> None:
    stored = squeezellm.quantise(random_matrix(), bits, outliers)
    quantization = {"quant_method": "squeezellm", "wbits": bits}
    source = opened(tmp_path, in_squeezellm(stored), quantization)
    np.testing.assert_array_equal(read(source, WEIGHT), squeezellm.decode(stored, bits))
    assert source.kind(WEIGHT) is None and source.names() == {WEIGHT}
    np.testing.assert_array_equal(  # into another dtype, as any tensor
        read(source, WEIGHT, ml_dtypes.bfloat16),
        squeezellm.decode(stored, bits).astype(ml_dtypes.bfloat16),
    )


SQUEEZE = {"quant_method": "squeezellm", "wbits": 4}


@pytest.mark.parametrize(
    ("quantization", "message"),
    [
        (AWQ | {"version": "gemv"}, "version 'gemv' is not supported; known: 'gemm'"),
        (AWQ | {"bits": 3}, "bits 3 is not supported; known: 4"),
        (AWQ | {"zero_point": False}, "zero_point False is not supported; known: True"),
        (AWQ | {"group_size": None}, "group_size 0 is not supported"),
        (AWQ | {"modules_to_not_convert": "x"}, "modules_to_not_convert must be a list"),
        (BNB | {"load_in_4bit": False}, "load_in_4bit False is not supported; known: True"),
        (BNB | {"load_in_8bit": True}, "load_in_8bit True is not supported; known: False"),
        (BNB | {"bnb_4bit_quant_type": "int4"}, "quant_type 'int4' .*None, 'nf4', 'fp4'"),
        (BNB | {"bnb_4bit_quant_storage": "bfloat16"}, "bnb_4bit_quant_storage 'bfloat16'"),
        (SQUEEZE | {"wbits": 5}, "wbits 5 is not supported; known: 3, 4"),
        ({"quant_method": "squeezellm"}, "wbits is missing"),
    ],
)
def test_configurations_that_are_refused(quantization: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        opened(tmp_path, {"model.norm.weight": np.ones(3, np.float32)}, quantization)


AWQ_PARTS = module(NAME, awq.quantise(random_matrix(), GROUP)._asdict())
NF4 = nf4.quantise(random_matrix(shape=(200, 128)), nested=True)
SPARSE = squeezellm.quantise(random_matrix(), 4, 3)
STATE = "weight.quant_state.bitsandbytes__nf4"


@pytest.mark.parametrize(
    ("tensors", "quantization", "message"),
    [
        (
            AWQ_PARTS | module(NAME, {"scales": np.zeros((3, 25), np.float16)}),
            AWQ,
            r"scales: expected shape \(3, 24\), found \(3, 25\)",
        ),
        (AWQ_PARTS, AWQ | {"group_size": 64}, "qweight: expected a multiple of group_size 64"),
        (
            {key: value for key, value in AWQ_PARTS.items() if not key.endswith("qzeros")},
            AWQ,
            "qzeros is missing",
        ),
        (in_bitsandbytes(NF4, **{STATE: None}), BNB, f"{STATE} is missing"),
        (
            in_bitsandbytes(NF4, **{STATE: state_of(NF4, shape=[2**31 - 1, 2**31 - 1])}),
            BNB,
            r"weight: expected shape \(2305843007066210305, 1\), found \(12800, 1\)",
        ),
        (
            in_bitsandbytes(NF4, **{STATE: state_of(NF4, blocksize=0)}),
            BNB,
            f"{STATE}: expected shape and blocksize in JSON, found something else",
        ),
        (in_bitsandbytes(NF4, **{STATE: np.full(9, 255, np.uint8)}), BNB, "found something else"),
        (in_bitsandbytes(NF4, **{STATE: np.zeros(70_000, np.uint8)}), BNB, "65536 bytes at most"),
        (
            in_bitsandbytes(NF4, **{STATE: state_of(NF4._replace(nested=None))}),
            BNB,
            "absmax: expected nested_blocksize and nested_offset",
        ),
        (
            in_bitsandbytes(NF4, **{"weight.nested_absmax": np.zeros(1, np.float32)}),
            BNB,
            r"nested_absmax: expected shape \(2,\), found \(1,\)",
        ),
        (
            in_bitsandbytes(NF4, **{"weight.absmax": np.zeros(5, np.uint8)}),
            BNB,
            r"absmax: expected shape \(400,\), found \(5,\)",
        ),
        (
            in_bitsandbytes(NF4, **{"weight.quant_map": np.full(16, np.inf, np.float32)}),
            BNB,
            "quant_map: expected finite numbers",
        ),
        (
            in_squeezellm(SPARSE, full_rows=np.zeros((2, K), np.float32)),
            SQUEEZE,
            "full_rows: expected no dense rows",
        ),
        (in_squeezellm(SPARSE, rows=None), SQUEEZE, "rows is missing"),
        (
            in_squeezellm(SPARSE, vals=np.zeros(4, np.float32)),
            SQUEEZE,
            r"vals: expected shape \(72,\), found \(4,\)",
        ),
        (
            in_squeezellm(SPARSE),
            SQUEEZE | {"wbits": 3},
            r"lookup_table: expected shape \(24, 8\)|whole codes of 3 bits",
        ),
    ],
)
def test_parts_that_are_refused(
    tensors: Tensors, quantization: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(WeightsError, match=message):
        opened(tmp_path, tensors, quantization)


@pytest.mark.parametrize("wrong", [-1, K])
def test_outliers_out_of_the_matrix(wrong: int, tmp_path: Path) -> None:
    cols = SPARSE.cols.copy()
    cols[5] = wrong
    source = opened(tmp_path, in_squeezellm(SPARSE, cols=cols), SQUEEZE)
    with pytest.raises(WeightsError, match=f"cols: expected inputs from 0 to 95, found {wrong}"):
        read(source, WEIGHT)


@pytest.mark.parametrize(("place", "value"), [(0, 1), (-1, 71), (-1, 73), (5, 99), (5, -(2**31))])
def test_outliers_in_no_order(place: int, value: int, tmp_path: Path) -> None:
    rows = SPARSE.rows.copy()
    rows[place] = value
    source = opened(tmp_path, in_squeezellm(SPARSE, rows=rows), SQUEEZE)
    with pytest.raises(WeightsError, match="rows: expected numbers in order from 0 to 72"):
        read(source, WEIGHT)
