"""Weights that are NaN or infinite are refused when they are read: the message names them."""

import json
import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine.errors import WeightsError
from jax_engine.models.checkpoints.gguf.gguf_file import GgufFile
from jax_engine.models.model_loader import load_model
from jax_engine.weights.tensor_source import all_finite
from tests.golden import tiny_checkpoints as tiny
from tests.models import test_gguf_codes as gguf_codes
from tests.models import test_quantised_models as quantised_models
from tests.models.checkpoints import write_checkpoint
from tests.models.test_gguf import gguf_tensors, write_gguf
from tests.models.test_gguf_codes import formats  # noqa: F401  a fixture

CONFIG = tiny.CONFIGS["biases"]
LAYER = "model.layers.1."
NAMES = [
    "model.embed_tokens.weight",
    f"{LAYER}self_attn.k_proj.weight",  # one of three that lie in one matrix
    f"{LAYER}self_attn.v_proj.bias",
    f"{LAYER}mlp.down_proj.weight",
    f"{LAYER}post_attention_layernorm.weight",
    "model.norm.weight",
    "lm_head.weight",
]
DTYPES: list[Any] = [
    np.float64, np.float32, np.float16, ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2,
]  # fmt: skip


def spoilt(name: str, value: float, dtype: Any = np.float32) -> dict[str, np.ndarray]:
    """The tiny model's tensors, with a value in one's last place."""
    tensors = {one: array.astype(dtype) for one, array in tiny.weights(CONFIG).items()}
    tensors[name].reshape(-1)[-1] = value
    return tensors


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", NAMES)
def test_the_message_names_file_tensor_and_place(name: str, value: float, tmp_path: Path) -> None:
    tensors = spoilt(name, value)
    directory = write_checkpoint(tmp_path, CONFIG, tensors)
    with pytest.raises(WeightsError) as error:
        load_model(str(directory))
    place = [size - 1 for size in tensors[name].shape]
    assert str(error.value).startswith(
        f"{directory / 'model.safetensors'}, tensor {name}: weights must be finite numbers of "
        f"float32, found {value} at {place}."
    )


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16])
def test_whatever_the_file_s_dtype(dtype: Any, tmp_path: Path) -> None:
    for value in (np.nan, -np.inf):
        directory = write_checkpoint(tmp_path, CONFIG, spoilt(NAMES[1], value, dtype))
        with pytest.raises(WeightsError, match=rf"tensor {NAMES[1]}: .* found {value} at"):
            load_model(str(directory))


@pytest.mark.parametrize(("dtype", "value"), [("float16", 65520.0), ("bfloat16", 3.4e38)])
def test_a_number_beyond_the_engine_s_dtype(dtype: str, value: float, tmp_path: Path) -> None:
    """It becomes infinite when it is rounded."""
    directory = write_checkpoint(tmp_path, CONFIG, spoilt(NAMES[3], value))
    load_model(str(directory))
    with pytest.raises(WeightsError, match=f"finite numbers of {dtype}, found inf.*wider dtype"):
        load_model(str(directory), dtype=np.dtype(dtype))


def test_a_head_for_scores(tmp_path: Path) -> None:
    tensors = spoilt(NAMES[0], 0.0)
    width = tensors.pop("lm_head.weight").shape[1]
    tensors["score.weight"] = np.zeros((2, width), np.float32)
    tensors["score.bias"] = np.array([0.0, np.nan], np.float32)
    architecture = {"architectures": ["LlamaForSequenceClassification"]}
    model = write_checkpoint(tmp_path, CONFIG | architecture, tensors)
    with pytest.raises(WeightsError, match=r"tensor score\.bias: .* found nan at \[1\]"):
        load_model(str(model))


def test_numbers_of_a_gguf_file(tmp_path: Path) -> None:
    tensors = gguf_tensors(CONFIG)
    tensors["blk.1.attn_q.weight"][3, 5] = np.nan
    path = write_gguf(tmp_path / "m.gguf", CONFIG, tensors=tensors)
    with pytest.raises(WeightsError) as error:
        load_model(str(path))
    assert f"{path}, tensor blk.1.attn_q.weight: weights must be finite" in str(error.value)


@pytest.mark.usefixtures("formats")
@pytest.mark.parametrize("quantization", [None, "dequantized"])
@pytest.mark.parametrize("kind", ["Q4_1", "Q8_0", "Q4_K", "Q6_K"])
def test_a_scale_of_blocks(kind: str, quantization: str | None, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    gguf_codes.write_quantised(path, (kind,))
    name = "blk.1.ffn_down.weight"
    tensor = GgufFile(path).tensors[name]
    scale = tensor.offset + (208 if kind == "Q6_K" else 0)
    _overwrite(path, scale, np.array(np.nan, "<f2").tobytes())
    with pytest.raises(WeightsError) as error:
        load_model(str(path), quantization=quantization)
    assert f"{path}, tensor {name}: weights must be finite" in str(error.value)
    assert "found nan at [0, 0]." in str(error.value)


@pytest.mark.usefixtures("formats")
@pytest.mark.parametrize("quantization", [None, "dequantized"])
@pytest.mark.parametrize(("case", "part"), [("fp8", "weight"), ("gptq", "scales")])
def test_parts_of_quantised_modules(
    case: str, part: str, quantization: str | None, tmp_path: Path
) -> None:
    quantised_models.write_quantised(tmp_path, case)
    path, module = tmp_path / "model.safetensors", f"{LAYER}mlp.up_proj"
    start, size = _place(path, f"{module}.{part}")
    wrong = b"\xff" * (size if part == "scales" else 1)
    _overwrite(path, start, wrong)
    with pytest.raises(WeightsError, match=rf"{module}.*: weights must be finite.* found nan at"):
        load_model(str(tmp_path), quantization=quantization)


def _place(path: Path, name: str) -> tuple[int, int]:
    """Where a tensor's bytes begin in a safetensors file, and how many bytes a number has."""
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    entry = json.loads(raw[8:start])[name]
    first, last = entry["data_offsets"]
    return start + first, (last - first) // math.prod(entry["shape"])


def _overwrite(path: Path, start: int, values: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(values)


@given(
    size=st.integers(1, 40),
    place=st.integers(0, 39),
    dtype=st.sampled_from(DTYPES),
    value=st.sampled_from(["nan", "inf", "-inf", "max", "-max"]),
    step=st.sampled_from([1, 2]),
)
def test_all_finite(size: int, place: int, dtype: Any, value: str, step: int) -> None:
    largest = ml_dtypes.finfo(dtype).max
    values = np.zeros((size, step), dtype)[:, 0]
    known = {"max": largest, "-max": -largest}
    values[place % size] = known[value] if value in known else float(value)
    assert all_finite(values) == ("max" in value)


def test_the_first_and_last_of_many_numbers() -> None:
    values = np.full(300_001, -np.finfo(np.float32).max, np.float32)
    assert all_finite(values) and all_finite(values[:0])
    for place in (0, (1 << 17) - 1, 1 << 17, 300_000):
        values[place] = -np.inf
        assert not all_finite(values)
        values[place] = 0


def test_integers_are_finite() -> None:
    assert all_finite(np.array([-1, 127], np.int8))
