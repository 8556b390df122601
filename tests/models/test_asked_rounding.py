"""`quantization="fp8"` and `"bitsandbytes"` of a checkpoint of numbers: rounded while it is read.

What comes out of FP8 is what a checkpoint with the oracle's codes gives, to the bit.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine import LLM, SamplingParams
from jax_engine.errors import ConfigError, WeightsError
from jax_engine.models.model_loader import load_model, open_model
from jax_engine.weights.code_sources import RowsOfCodes
from jax_engine.weights.codes import numbers, row_dtype
from jax_engine.weights.rounded_source import BLOCK, NF4, ROUNDINGS, RoundedSource
from reference.quantization import fp8, nf4
from tests.golden import tiny_checkpoints as tiny
from tests.golden.families.checkpoints import cases, tensors_of
from tests.models.checkpoints import write_checkpoint
from tests.models.paged import PagedRun
from tests.models.quantised_files import Stored, Tensors, module, write_file
from tests.models.test_decoder import TOLERANCE, reference_logits
from tests.models.test_gguf_codes import formats  # noqa: F401  a fixture
from tests.models.test_quantised_models import CONFIG
from tests.weights.arrays_source import ArraysSource


def rounded(matrix: np.ndarray, name: str) -> tuple[RoundedSource, np.ndarray]:
    """A source with this matrix, and the numbers that it reads of it."""
    source = RoundedSource(ArraysSource({"x": matrix}), ["x"], ROUNDINGS[name])
    found = np.empty(matrix.shape, np.float32)
    source.read_into("x", found)
    return source, found


def read(matrix: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of a rounded matrix as numbers, and those of its rows of codes."""
    source, plain = rounded(matrix, name)
    rows = np.empty(matrix.shape[:-1], row_dtype(source.kinds, matrix.shape[-1]))
    source.read_into("x", rows)
    return plain, numbers(rows, source.kinds)


def drawn(seed: int, shape: tuple[int, ...], size: float) -> np.ndarray:
    """Numbers of many sizes, of which some rows are zero."""
    rng = np.random.default_rng(seed)
    found = rng.standard_normal(shape) * np.exp(rng.uniform(-8, 8, shape)) * size
    return (found * (rng.random((*shape[:-1], 1)) > 0.2)).astype(np.float32)


@given(
    st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 130),
    st.sampled_from([1e-44, 1e-30, 1.0, 1e30]),
)  # fmt: skip
def test_fp8_is_the_oracle_s(seed: int, rows: int, columns: int, size: float) -> None:
    matrix = drawn(seed, (rows, columns), size)
    plain, of_codes = read(matrix, "fp8")
    np.testing.assert_array_equal(plain, of_codes)
    if size > 1e-40:  # the oracle's scale may be zero
        np.testing.assert_array_equal(plain, fp8.decode(fp8.quantise(matrix, (1, columns))))
    assert np.isfinite(plain).all()


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 3), st.sampled_from([1e-44, 1]))
def test_nf4_is_the_nearest(seed: int, rows: int, blocks: int, size: float) -> None:
    matrix = drawn(seed, (rows, blocks * BLOCK), size)
    plain, of_codes = read(matrix, "bitsandbytes")
    np.testing.assert_array_equal(plain, of_codes)
    grouped = matrix.reshape(rows, blocks, BLOCK, 1)
    largest = np.abs(grouped).max(axis=-2, keepdims=True)
    distances = np.abs(grouped - largest * np.array(NF4, np.float32)).min(axis=-1)
    found = np.abs(grouped[..., 0] - plain.reshape(rows, blocks, BLOCK))
    assert (found <= distances + 1e-6 * largest[..., 0]).all()
    assert tuple(nf4.NF4.tolist()) == tuple(np.array(NF4, np.float32).tolist())


def test_experts_in_one_tensor() -> None:
    matrix = drawn(3, (3, 4, 2 * BLOCK), 1.0)
    for name in ROUNDINGS:
        plain, of_codes = read(matrix, name)
        np.testing.assert_array_equal(plain, of_codes)
        for one, alone in zip(plain, matrix, strict=True):
            np.testing.assert_array_equal(one, read(alone, name)[0])


def test_rows_of_no_whole_blocks_stay_numbers() -> None:
    matrix = drawn(3, (3, BLOCK + 2), 1.0)
    source, found = rounded(matrix, "bitsandbytes")
    assert (source.kinds, source.kind("x")) == ((), None)
    np.testing.assert_array_equal(found, matrix)


def logits(path: Path, quantization: str | None = None) -> np.ndarray:
    model = load_model(str(path), quantization=quantization)
    return PagedRun(model.config, model.graphdef, model.params).feed(tiny.PROMPT)


@pytest.mark.usefixtures("formats")
def test_a_model_in_fp8_is_a_checkpoint_in_fp8(tmp_path: Path) -> None:
    plain = write_checkpoint(tmp_path / "plain", CONFIG)
    tensors: Tensors = {}
    for name, values in tiny.weights(CONFIG).items():
        if name.endswith("_proj.weight"):
            stored = fp8.quantise(values, (1, values.shape[1]))
            parts: dict[str, Any] = {"weight": Stored(stored.weight, "F8_E4M3")}
            parts["weight_scale"] = stored.scale
            tensors |= module(name.removesuffix(".weight"), parts)
        else:
            tensors[name] = values
    (tmp_path / "fp8").mkdir()
    write_file(tmp_path / "fp8" / "model.safetensors", tensors)
    config = CONFIG | {"quantization_config": {"quant_method": "fp8"}}
    (tmp_path / "fp8" / "config.json").write_text(json.dumps(config))
    np.testing.assert_array_equal(logits(plain, "fp8"), logits(tmp_path / "fp8"))


@pytest.mark.usefixtures("formats")
def test_a_model_in_nf4_computes_with_its_numbers(tmp_path: Path) -> None:
    config = CONFIG | {"intermediate_size": 128}
    path = write_checkpoint(tmp_path / "plain", config)
    weights = tiny.weights(config)
    for name, values in weights.items():
        if name.endswith("_proj.weight"):
            weights[name] = rounded(values, "bitsandbytes")[1]
    expected = reference_logits(config, tiny.PROMPT, weights)
    np.testing.assert_allclose(logits(path, "bitsandbytes"), expected, **TOLERANCE)
    sizes = [load_model(str(path), quantization=name).num_bytes for name in (None, "bitsandbytes")]
    assert sizes[1] < sizes[0]


@pytest.mark.parametrize("name", ["qwen3_moe", "deepseek_v3", "gpt2", "granitemoe"])
def test_what_becomes_codes(name: str, tmp_path: Path) -> None:
    """Not the embedding, the head, the choice of experts, or what is stored [in, out]."""
    case = cases()[name]
    path = write_checkpoint(tmp_path / name, case["config"], tensors_of(case))
    leaves = [
        one for one in open_model(str(path), quantization="fp8").leaves.values() if one.format
    ]
    coded = {one.declared for one in leaves if isinstance(one.format, RowsOfCodes)}
    others = {one.declared for one in leaves} - coded
    stay = {"embed.weight", "lm_head.weight", "layers.experts.router.weight"}
    stay |= {"layers.attention.k_up", "layers.attention.v_up"}
    if name == "gpt2":
        assert not coded
    else:
        assert coded and others <= stay
    load_model(str(path), quantization="fp8")


def test_the_engine_takes_it(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "plain", CONFIG)
    settings: dict[str, Any] = {"max_model_len": 64, "num_gpu_blocks_override": 32}
    params = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
    for name in ROUNDINGS:
        llm = LLM(str(path), quantization=name, skip_tokenizer_init=True, **settings)
        output = llm.generate({"prompt_token_ids": tiny.PROMPT[:9]}, params, use_tqdm=False)[0]
        assert len(output.outputs[0].token_ids) == 6


def test_what_is_no_number_is_refused(tmp_path: Path) -> None:
    weights = tiny.weights(CONFIG)
    weights["model.layers.1.mlp.up_proj.weight"][3, 5] = np.nan
    path = write_checkpoint(tmp_path / "plain", CONFIG, weights)
    for name in ROUNDINGS:
        with pytest.raises(WeightsError, match=r"layers\.1\.mlp\.up_proj\.weight.*\[3, 5\]"):
            load_model(str(path), quantization=name)


def test_other_methods_cannot_be_asked_for(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "plain", CONFIG)
    with pytest.raises(ConfigError, match=r"not quantised.*'w8a8', 'fp8', 'bitsandbytes'"):
        load_model(str(path), quantization="gptq")
    with pytest.raises(ConfigError, match="batch_invariant needs weights that are held as numbers"):
        load_model(str(path), quantization="fp8", batch_invariant=True)
