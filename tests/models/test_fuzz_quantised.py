"""Damaged quantised checkpoints, at random: loading succeeds or says what is wrong.

As `test_fuzz_files` does to files of numbers. A change of a count of bits, of a group's size or of
a tensor's shape must be found before memory is taken for it, and before a kernel reads past it.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from jax_engine.errors import JaxEngineError
from tests.models import test_gguf_codes, test_quantised_models
from tests.models.test_fuzz_files import (
    EXAMPLES,
    bounded,
    changes,
    damage,
    load_weights,
    operations,
    replaced,
    values,
)

Change = tuple[list[float], Any, bool]
GGUF = {"4-bit": ("Q4_0", "IQ4_NL"), "8-bit": ("Q8_0",), "k-quants": ("Q4_K", "Q6_K", "Q3_K")}
CASES = ("gptq", "gptq-act-order", "packed", "awq", "fp8", "nf4", "squeezellm")


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a directory a method, and a file a mixture of GGUF's types."""
    folder = tmp_path_factory.mktemp("quantised")
    for case in CASES:
        (folder / case).mkdir()
        test_quantised_models.write_quantised(folder / case, case)
        load_weights(folder / case)
    for name, types in GGUF.items():
        test_gguf_codes.write_quantised(folder / f"{name}.gguf", types)
        load_weights(folder / f"{name}.gguf")
    return folder


def attempt(path: Path) -> None:
    with bounded():
        try:
            load_weights(path)
            event("done")
        except JaxEngineError as error:
            event(type(error).__name__)
            assert len(str(error)) > 20


def with_file(pristine: Path, case: str, name: str, data: bytes) -> Path:
    """The case's directory with other bytes in one file."""
    damaged = pristine / "damaged"
    damaged.mkdir(exist_ok=True)
    for file in (pristine / case).iterdir():
        here = damaged / file.name
        here.unlink(missing_ok=True)
        if file.name == name:
            here.write_bytes(data)
        else:
            here.symlink_to(file)
    return damaged


@EXAMPLES
@given(st.sampled_from(list(GGUF)), st.lists(operations, min_size=1, max_size=4))
def test_gguf_files(pristine: Path, name: str, steps: list[tuple[str, float, Any]]) -> None:
    data = damage((pristine / f"{name}.gguf").read_bytes(), steps)
    (pristine / "damaged.gguf").write_bytes(data)
    attempt(pristine / "damaged.gguf")


@EXAMPLES
@given(st.sampled_from(CASES), st.lists(operations, min_size=1, max_size=4))
def test_tensors(pristine: Path, case: str, steps: list[tuple[str, float, Any]]) -> None:
    name = "model.safetensors"
    data = damage((pristine / case / name).read_bytes(), steps)
    attempt(with_file(pristine, case, name, data))


@EXAMPLES
@given(st.sampled_from(CASES), changes)
def test_settings(pristine: Path, case: str, changes: list[Change]) -> None:
    """Values of `quantization_config` alone: the rest of config.json is tried elsewhere."""
    raw = json.loads((pristine / case / "config.json").read_text())
    for path, value, delete in changes:
        settings = raw["quantization_config"]
        raw["quantization_config"] = replaced(settings, path or [0.0], value, delete)
        if not isinstance(raw["quantization_config"], dict):
            break
    attempt(with_file(pristine, case, "config.json", json.dumps(raw).encode()))


sizes = st.sampled_from([0, 1, 2, 3, 5, 8, 31, 32, 33, 64, 96, 128, 2**31, 2**40])


@EXAMPLES
@given(st.sampled_from(CASES), st.integers(0, 10**6), st.lists(sizes, max_size=3), values)
@example("gptq", 0, [0, 8], None)
def test_shapes(pristine: Path, case: str, place: int, shape: list[int], dtype: Any) -> None:
    """A tensor of another shape, or of another dtype, whose bytes are as many as it says."""
    data = (pristine / case / "model.safetensors").read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    name = sorted(header)[place % len(header)]
    header[name]["shape"] = shape
    if place % 3 == 0:
        header[name]["dtype"] = dtype
    text = json.dumps(header).encode()
    data = len(text).to_bytes(8, "little") + text + data[end:]
    attempt(with_file(pristine, case, "model.safetensors", data))
