"""Quantised checkpoints through the loader and the decoder, beside the oracle's decoded weights."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jax_engine import LLM, SamplingParams
from jax_engine.models.model_loader import load_model
from reference.quantization import awq, compressed_tensors, fp8, gptq, mxfp4, nf4, squeezellm
from tests.golden import tiny_checkpoints as tiny
from tests.golden.families.checkpoints import PROMPT, cases, draw
from tests.models.paged import PagedRun
from tests.models.quantised_files import Stored, Tensors, module, nf4_parts, write_file
from tests.models.test_decoder import TOLERANCE, reference_logits
from tests.models.test_gguf_codes import formats  # noqa: F401  a fixture
from tests.models.test_quantization_floats import FP8
from tests.models.test_quantization_tables import AWQ, BNB, SQUEEZE

CONFIG = tiny.CONFIGS["plain"] | {"hidden_size": 64, "intermediate_size": 96}
Quantised = tuple[dict[str, Any], np.ndarray]  # a module's parts, and its numbers
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32}
PACKED = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "version": "0.20.0",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32},
        }
    },
    "ignore": ["lm_head"],
}


def by_gptq(bits: int, **options: Any) -> Callable[[np.ndarray], Quantised]:
    def quantise(matrix: np.ndarray) -> Quantised:
        stored = gptq.quantise(matrix, bits, 32, **options)
        return stored._asdict(), gptq.decode(stored, bits)

    return quantise


def in_act_order(matrix: np.ndarray) -> Quantised:
    """The order is that of the inputs, which q, k and v share."""
    order = np.random.default_rng(3).permutation(matrix.shape[1]).astype(np.int32)
    return by_gptq(4, symmetric=True, order=order)(matrix)


def by_packing(matrix: np.ndarray) -> Quantised:
    stored = compressed_tensors.quantise_packed(matrix, 4, 32, symmetric=True)
    parts: dict[str, Any] = stored._asdict() | {"weight_shape": np.array(stored.weight_shape)}
    return parts, compressed_tensors.decode_packed(stored, 4)


def by_awq(matrix: np.ndarray) -> Quantised:
    stored = awq.quantise(matrix, 32)
    return stored._asdict(), awq.decode(stored)


def in_fp8(matrix: np.ndarray) -> Quantised:
    stored = fp8.quantise(matrix, (48, 32))
    parts = {"weight": Stored(stored.weight, "F8_E4M3"), "weight_scale_inv": stored.scale}
    return parts, fp8.decode(stored)


def in_nf4(matrix: np.ndarray) -> Quantised:
    stored = nf4.quantise(matrix, nested=True)
    return nf4_parts(stored), nf4.decode(stored)


def with_outliers(matrix: np.ndarray) -> Quantised:
    stored = squeezellm.quantise(matrix, 4, 3)
    return stored._asdict(), squeezellm.decode(stored, 4)


Case = tuple[dict[str, Any], Callable[[np.ndarray], Quantised]]
CASES: dict[str, Case] = {
    "gptq": (GPTQ | {"sym": False}, by_gptq(4)),
    "gptq-8": (GPTQ | {"sym": False, "bits": 8}, by_gptq(8)),
    "gptq-2": (GPTQ | {"sym": True, "bits": 2}, by_gptq(2, symmetric=True)),
    "gptq-act-order": (GPTQ | {"sym": True, "desc_act": True}, in_act_order),
    "packed": (PACKED, by_packing),
    "awq": (AWQ, by_awq),
    "fp8": (FP8 | {"weight_block_size": [48, 32]}, in_fp8),
    "nf4": (BNB, in_nf4),
}
# A table a row, and outliers: no kernel holds these, so they are decoded when they are read.
DECODED: dict[str, Case] = {"squeezellm": (SQUEEZE, with_outliers)}


def write_quantised(
    directory: Path, case: str, config: dict[str, Any] = CONFIG
) -> dict[str, np.ndarray]:
    """A tiny checkpoint whose layers' matrices are quantised. Returns its numbers."""
    settings, quantise = (CASES | DECODED)[case]
    tensors: Tensors = {}
    decoded: dict[str, np.ndarray] = {}
    for name, values in tiny.weights(config).items():
        if not name.endswith("_proj.weight"):
            tensors[name] = decoded[name] = values
            continue
        parts, decoded[name] = quantise(values)
        tensors |= module(name.removesuffix(".weight"), parts)
    write_file(directory / "model.safetensors", tensors)
    whole = config | {"quantization_config": settings}
    (directory / "config.json").write_text(json.dumps(whole))
    return decoded


@pytest.mark.usefixtures("formats")
@pytest.mark.parametrize("case", [*CASES, *DECODED])
def test_logits_are_those_of_the_decoded_weights(case: str, tmp_path: Path) -> None:
    decoded = write_quantised(tmp_path, case)
    expected = reference_logits(CONFIG, tiny.PROMPT, decoded)
    sizes = []
    for quantization in (None, "dequantized"):
        model = load_model(str(tmp_path), quantization=quantization)
        found = PagedRun(model.config, model.graphdef, model.params).feed(tiny.PROMPT)
        np.testing.assert_allclose(found, expected, **TOLERANCE)
        sizes.append(model.num_bytes)
    assert (sizes[0] < sizes[1]) == (case in CASES)


@pytest.mark.slow
def test_the_engine_generates_the_tokens_of_the_oracle(tmp_path: Path) -> None:
    decoded = write_quantised(tmp_path, "gptq")
    settings: dict[str, Any] = {"max_model_len": 64, "num_gpu_blocks_override": 32}
    settings |= {"dtype": "float32", "skip_tokenizer_init": True}
    llm = LLM(str(tmp_path), quantization="gptq_marlin", **settings)
    params = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
    prompt = tiny.PROMPT[:9]
    output = llm.generate({"prompt_token_ids": prompt}, params, use_tqdm=False)[0]
    tokens = list(output.outputs[0].token_ids)
    logits = reference_logits(CONFIG, prompt + tokens, decoded)[len(prompt) - 1 : -1]
    assert tokens == logits.argmax(axis=1).tolist()


@pytest.mark.slow
@pytest.mark.usefixtures("formats")
def test_experts_of_gpt_oss_in_mxfp4(tmp_path: Path) -> None:
    """Their rows are columns where they are numbers, and gate and up lie in turns."""
    write_mxfp4(tmp_path)
    found, sizes = [], []
    for quantization in (None, "dequantized"):
        model = load_model(str(tmp_path), quantization=quantization)
        run = PagedRun(model.config, model.graphdef, model.params)
        found.append(run.feed(PROMPT))
        sizes.append(model.num_bytes)
    np.testing.assert_allclose(*found, **TOLERANCE)
    assert sizes[0] < sizes[1]


def write_mxfp4(folder: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """gpt-oss with experts in MXFP4. Returns its configuration, and the numbers of all tensors."""
    case, wider = cases()["gpt_oss"], {48: 64, 96: 128}
    tensors: Tensors = {}
    numbers: dict[str, np.ndarray] = {}
    for name, sizes in case["tensors"].items():
        values = draw(name, tuple(wider.get(size, size) for size in sizes))
        if name.endswith(("down_proj", "gate_up_proj")):
            blocks, scales = mxfp4.quantise(np.ascontiguousarray(values.swapaxes(1, 2)))
            tensors |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
            numbers[name] = mxfp4.decode(blocks, scales).swapaxes(1, 2)
        else:
            tensors[name] = numbers[name] = values
    write_file(folder / "model.safetensors", tensors)
    config = case["config"] | {"intermediate_size": 64}
    quantised = config | {"quantization_config": {"quant_method": "mxfp4"}}
    (folder / "config.json").write_text(json.dumps(quantised))
    return config, numbers
