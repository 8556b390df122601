"""The tuning table: what was measured is used, the rest gets a default, errors say where."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

from pallas_kernels import tuning

DECODE = {"block_kv": 128, "num_warps": 8, "num_stages": 4, "splits": 3}
PREFILL = {"block_q": 128, "block_kv": 128, "stages": 2, "ping_pong": True}


def write(path: Path, kernel: str, shape: str, values: Any) -> Path:
    path.write_text(json.dumps({"NVIDIA H200": {kernel: {shape: values}}}))
    return path


def test_an_entry_is_found_by_device_kernel_and_shape_only(tmp_path: Path) -> None:
    table = tuning.load(write(tmp_path / "table.json", "triton_decode", "128 16 bfloat16", DECODE))
    here = ("triton_decode", "NVIDIA H200", 128, 16, jnp.bfloat16)
    with tuning.instead_of_the_file(table):
        assert tuning.lookup(*here) == tuning.TritonDecodeConfig(**DECODE)
        for other in (
            ("triton_decode", "NVIDIA A100", 128, 16, jnp.bfloat16),
            ("triton_decode", "NVIDIA H200", 64, 16, jnp.bfloat16),
            ("triton_decode", "NVIDIA H200", 128, 32, jnp.bfloat16),
            ("triton_decode", "NVIDIA H200", 128, 16, jnp.int8),
        ):
            assert tuning.lookup(*other) == tuning.default(other[0], other[2], other[4])
    assert tuning.lookup(*here) != tuning.TritonDecodeConfig(**DECODE)


@pytest.mark.parametrize("name", tuning.KERNELS)
@pytest.mark.parametrize("head_dim", [64, 80, 96, 112, 128, 192, 256])
def test_every_kernel_has_a_default(name: str, head_dim: int) -> None:
    assert type(tuning.default(name, head_dim, jnp.bfloat16)) is tuning.KERNELS[name]


@pytest.mark.parametrize("head_dim", [64, 80, 96, 112, 128, 192, 256])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "int8"])
def test_warps_of_64_threads_have_defaults_of_their_own(head_dim: int, dtype: str) -> None:
    """No program has more than 512 threads: at 1,024 a thread would have 128 registers."""
    for name in ("triton_decode", "triton_prefill"):
        narrow, wide = (tuning.default(name, head_dim, jnp.dtype(dtype), size) for size in (32, 64))
        assert type(wide) is tuning.KERNELS[name] and wide != narrow
        assert wide.num_warps * 64 <= 512 and wide.num_stages == 1
        key = (name, "AMD Instinct MI300X", head_dim, 16, jnp.dtype(dtype))
        assert tuning.lookup(*key, 64) == wide and tuning.lookup(*key) == narrow
    for name in ("mosaic_decode", "mosaic_prefill"):
        assert tuning.default(name, head_dim, dtype, 64) == tuning.default(name, head_dim, dtype)


@pytest.mark.parametrize(
    ("name", "shape", "values", "message"),
    [
        ("triton_decode", "128 16 bfloat16", DECODE | {"block_kv": 48}, "power of 2"),
        ("triton_decode", "128 16 bfloat16", DECODE | {"num_stages": 0}, "1..8"),
        ("triton_decode", "128 16 bfloat16", DECODE | {"num_warps": "4"}, "num_warps='4'"),
        ("triton_decode", "128 16 bfloat16", DECODE | {"splits": 0}, "splits=0"),
        ("triton_decode", "128 16 bfloat16", DECODE | {"color": 1}, "expected exactly"),
        ("triton_decode", "128 16 bfloat16", {"block_kv": 64}, "expected exactly"),
        ("triton_decode", "128 bfloat16", DECODE, "128 bfloat16"),
        ("mosaic_prefill", "128 16 bfloat16", PREFILL | {"block_q": 64}, "ping_pong=True must be"),
        ("mosaic_prefill", "128 16 bfloat16", PREFILL | {"block_q": 192}, "not 192 and 2"),
        ("mosaic_prefill", "128 16 bfloat16", PREFILL | {"stages": 1}, "not 128 and 1"),
        ("mosaic_prefill", "128 16 bfloat16", PREFILL | {"ping_pong": 1}, "ping_pong=1"),
        ("cuda_decode", "128 16 bfloat16", DECODE, "no such kernel"),
    ],
)
def test_a_wrong_entry_is_refused_by_name(
    tmp_path: Path, name: str, shape: str, values: Any, message: str
) -> None:
    file = write(tmp_path / "table.json", name, shape, values)
    with pytest.raises(ValueError, match=message) as error:
        tuning.load(file)
    assert repr(shape) in str(error.value) and repr(name) in str(error.value)


def test_an_unknown_kernel_has_no_configuration() -> None:
    with pytest.raises(ValueError, match="triton_decode"):
        tuning.lookup("cuda_decode", "NVIDIA H200", 128, 16, jnp.bfloat16)


def test_the_table_that_is_shipped_is_valid() -> None:
    assert all(dataclasses.is_dataclass(c) for c in tuning.load(tuning.TABLE_FILE).values())
