"""Adapters of llama.cpp: the same as PEFT's that they were converted from.

They are written here as `convert_lora_to_gguf.py` writes them, with row orders of the tests' own.
"""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine.errors import ConfigError, JaxEngineError, WeightsError
from jax_engine.lora.adapter import Adapter
from jax_engine.lora.adapter_registry import read_adapter
from jax_engine.lora.modules import Modules, modules_of
from jax_engine.models.checkpoints.gguf.gguf_file import GgufFile
from jax_engine.models.registry import config_from_hf
from tests.golden.families.checkpoints import tensors_of as checkpoint_of
from tests.lora.adapters import DOWN1, EMBED, HEAD, K1, MODEL, PLAIN, Q0, modules, read, tensors_of
from tests.models.llama_cpp import converted
from tests.models.test_families import CASES

ALPHA = 8.0
Array = np.ndarray


def as_gguf(tensors: dict[str, Array], config: Any, arch: str) -> dict[str, Array]:
    """PEFT's tensors under llama.cpp's names: B's rows are in the order of the matrix's."""
    found: dict[str, Array] = {}
    for name, array in tensors.items():
        module, _, part = name.removeprefix("base_model.model.").partition(".lora_")
        is_a = part.removeprefix("embedding_").startswith("A")
        rows = array if not is_a else np.zeros((_rows(tensors, module), 1), np.float32)
        (stored,) = (k for k in converted(config, {f"{module}.weight": rows}, arch))
        if is_a:
            found[f"{stored}.lora_a"] = array.T if stored == "token_embd.weight" else array
        else:
            (found[f"{stored}.lora_b"],) = converted(
                config, {f"{module}.weight": rows}, arch
            ).values()
    return found


def _rows(tensors: dict[str, Array], module: str) -> int:
    stem = f"base_model.model.{module}.lora_"
    found = tensors.get(f"{stem}B.weight", tensors.get(f"{stem}embedding_B"))
    assert found is not None
    return len(found)


def write(
    path: Path, tensors: dict[str, Array], arch: str = "llama", kind: Any = None, **fields: Any
) -> Path:
    """`fields` replace what an adapter says; None leaves a field out."""
    writer = gguf.GGUFWriter(path, arch)
    said = {"general.type": "adapter", "adapter.type": "lora", "adapter.lora.alpha": ALPHA} | {
        key.replace("__", "."): value for key, value in fields.items()
    }
    for key, value in said.items():
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, list):
            writer.add_array(key, value)
        elif value is not None:
            writer.add_float32(key, value)
    for name, array in tensors.items():
        if kind is None:
            writer.add_tensor(name, np.ascontiguousarray(array))
        else:
            writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def read_file(path: Path, of: Modules | None = None, limit: int = 16) -> Adapter:
    return read_adapter(path, of or modules(), max_lora_rank=limit)


def test_an_adapter_of_every_module_of_a_llama(tmp_path: Path) -> None:
    tensors = tensors_of(PLAIN)
    path = write(tmp_path / "a.gguf", as_gguf(tensors, MODEL, "llama"))
    assert read_file(path) == read(tensors)


def test_rows_of_q_are_another_order_in_the_file(tmp_path: Path) -> None:
    """Otherwise the test above would prove little."""
    tensors = tensors_of((Q0, K1, DOWN1))
    stored = as_gguf(tensors, MODEL, "llama")
    for module, name, moved in (
        (Q0, "blk.0.attn_q", True),
        (K1, "blk.1.attn_k", True),
        (DOWN1, "blk.1.ffn_down", False),
    ):
        b = tensors[f"base_model.model.{module}.lora_B.weight"]
        assert np.array_equal(stored[f"{name}.weight.lora_b"], b) != moved


@pytest.mark.parametrize(
    ("case", "arch"),
    [
        ("qwen2", "qwen2"),
        ("gemma2", "gemma2"),
        ("phi3", "phi3"),
        ("gpt_neox", "gptneox"),
        ("bloom", "bloom"),
        ("falcon_40b", "falcon"),
        ("granite", "granite"),
        ("smollm3", "smollm3"),
    ],
)
def test_adapters_of_other_families(case: str, arch: str, tmp_path: Path) -> None:
    config = CASES[case]["config"]
    of = modules_of(config_from_hf(config))
    heads = [name for name, one in of.by_name.items() if one.kind == "head"]
    names = [name for name in of.by_name if name not in heads]
    assert checkpoint_of(CASES[case]).keys() >= {f"{name}.weight" for name in names}
    tensors = tensors_of(names, of=of)
    path = write(tmp_path / "a.gguf", as_gguf(tensors, config, arch), arch)
    assert read_file(path, of) == read(tensors, of=of)


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0"])
def test_other_dtypes_become_float32(kind: str, tmp_path: Path) -> None:
    tensors = tensors_of((Q0,), rank=32, dtype=np.float32)
    halves = {name: np.round(array * 8) / 8 for name, array in tensors.items()}
    stored = as_gguf(halves, MODEL, "llama")
    path = write(tmp_path / "a.gguf", stored, kind=gguf.GGMLQuantizationType[kind])
    (one,) = read_file(path, limit=32).modules
    assert one.a.dtype == one.b.dtype == np.float32
    error = 0.02 if kind == "Q8_0" else 0.0
    b = halves[f"base_model.model.{Q0}.lora_B.weight"]
    np.testing.assert_allclose(one.b, b, atol=error * np.abs(b).max(), rtol=0)


def test_alpha(tmp_path: Path) -> None:
    """llama.cpp multiplies by alpha / rank, or by 1 where alpha is 0 or not there."""
    tensors = as_gguf(tensors_of((Q0, K1), ranks={K1: 2}), MODEL, "llama")
    for alpha, wanted in ((8.0, [2.0, 4.0]), (-1.0, [-0.25, -0.5]), (0.0, [1, 1]), (None, [1, 1])):
        path = write(tmp_path / "a.gguf", tensors, adapter__lora__alpha=alpha)
        assert [one.scaling for one in read_file(path).modules] == wanted


Q_A, Q_B = "blk.0.attn_q.weight.lora_a", "blk.0.attn_q.weight.lora_b"
FINE = as_gguf(tensors_of((Q0, EMBED, HEAD)), MODEL, "llama")


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"general__type": "model"}, "must be 'adapter' and 'lora', got 'model'"),
        ({"general__type": None}, r"general\.type is missing"),
        ({"adapter__type": "dora"}, "got 'adapter' and 'dora'"),
        ({"adapter__type": None}, r"adapter\.type is missing"),
        ({"adapter__lora__alpha": "8"}, r"adapter\.lora\.alpha must be a number"),
        ({"adapter__lora__alpha": float("nan")}, "must be a number .* got nan"),
        ({"adapter__lora__alpha": float("inf")}, r"adapter\.lora\.alpha must be"),
        ({"adapter__alora__invocation_tokens": [1, 2]}, r"adapter\.alora\.invocation_tokens \[1"),
        ({"adapter__lora__prompt_prefix": "Say:"}, r"adapter\.lora\.prompt_prefix 'Say:' is not"),
    ],
)
def test_metadata_that_is_refused(fields: dict[str, Any], what: str, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=what):
        read_file(write(tmp_path / "a.gguf", FINE, **fields))


def test_metadata_that_changes_nothing(tmp_path: Path) -> None:
    fields = {"adapter__lora__task_name": "sums", "adapter__lora__prompt_prefix": ""}
    assert read_file(write(tmp_path / "a.gguf", FINE, **fields)).rank == 4


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({Q_A: None}, f"{Q_B}: its partner is missing"),
        ({Q_B: None}, f"{Q_A}: its partner is missing"),
        ({Q_A: np.ones((4, 31), np.float32)}, r"expected shape \(4, 32\)"),
        ({Q_B: np.ones((33, 4), np.float32)}, r"expected shape \(32, 4\)"),
        ({Q_B: np.ones((32, 3), np.float32)}, r"expected shape \(32, 4\)"),
        ({Q_A: np.full((4, 32), np.nan, np.float32)}, "finite, found nan"),
        ({"blk.0.attn_norm.weight": np.ones(32, np.float32)}, "attn_norm.weight is not an adap"),
        ({"blk.9.attn_q.weight.lora_a": np.ones((4, 32), np.float32)}, r"no module blk\.9\.attn_q"),
        (
            {"blk.0.ffn_up_exps.weight.lora_a": np.ones((6, 4, 32), np.float32)},
            "ffn_up_exps.weight.lora_a is of all experts .*Give the folder of PEFT's",
        ),
        ({"token_embd.weight.lora_a": np.ones((4, 61), np.float32)}, r"shape \(61, 61\)|\(4, 61\)"),
    ],
)
def test_tensors_that_are_refused(change: dict[str, Any], what: str, tmp_path: Path) -> None:
    tensors = {name: array for name, array in (FINE | change).items() if array is not None}
    with pytest.raises(WeightsError, match=what):
        read_file(write(tmp_path / "a.gguf", tensors))


def test_ranks_above_the_limit(tmp_path: Path) -> None:
    path = write(tmp_path / "a.gguf", FINE)
    with pytest.raises(WeightsError, match=r"rank 4 must be between 1 and max_lora_rank \(3\)"):
        read_file(path, limit=3)
    with pytest.raises(WeightsError, match="max_lora_rank must be an integer"):
        read_file(path, limit=0)


def test_an_adapter_of_another_architecture(tmp_path: Path) -> None:
    """Its names and shapes may fit, but not the order of its rows."""
    with pytest.raises(WeightsError, match=r"'qwen2' is not that of the model, Llama.*'llama'"):
        read_file(write(tmp_path / "a.gguf", FINE, "qwen2"))
    of = modules_of(config_from_hf(CASES["qwen2"]["config"]))
    with pytest.raises(WeightsError, match="'llama' is not that of the model, Qwen2ForCausalLM"):
        read_file(write(tmp_path / "a.gguf", FINE), of)
    with pytest.raises(ConfigError, match="GGUF architecture 'mamba' is not supported"):
        read_file(write(tmp_path / "a.gguf", FINE, "mamba"), of)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("gguf") / "whole.gguf", FINE)


WHOLE_BYTES = 4800  # more than the file has


@given(st.integers(0, WHOLE_BYTES))
def test_any_truncation_is_a_typed_error(whole: Path, length: int) -> None:
    """The padding behind the last tensor may be cut: it is no part of the file's content."""
    content, torn = whole.read_bytes(), whole.with_name("torn.gguf")
    end = max(one.offset + one.num_bytes for one in GgufFile(whole).tensors.values())
    assert end < WHOLE_BYTES and not any(content[end:])
    torn.write_bytes(content[:length])
    if length >= end:
        assert read_file(torn) == read_file(whole)
        return
    with pytest.raises(JaxEngineError, match=str(torn)):
        read_file(torn)
