"""GGUF's blocks as rows of codes, and models that compute with them."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize

from jax_engine import LLM, SamplingParams
from jax_engine.errors import ConfigError
from jax_engine.models.checkpoints.gguf.gguf_file import GgufFile
from jax_engine.models.checkpoints.gguf.gguf_tensors import LAYOUTS, GgufTensors
from jax_engine.models.model_loader import load_model
from jax_engine.weights.codes import numbers, row_dtype
from reference.quantization import gguf as oracle
from tests.golden import tiny_checkpoints as tiny
from tests.models.checkpoints import write_checkpoint
from tests.models.llama_cpp import converted, metadata, write_gguf_file
from tests.models.paged import PagedRun
from tests.models.test_decoder import TOLERANCE, reference_logits
from tests.models.test_gguf import random_blocks

CONFIG = tiny.CONFIGS["tied"] | {
    "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 32,
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_rows_of_every_block_type(name: str, tmp_path: Path) -> None:
    """A whole tensor of more rows than are taken apart at a time, and one of experts."""
    kind = GGMLQuantizationType[name]
    raw = random_blocks(kind, (600, 512))
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("w", raw, raw_dtype=kind)
    writer.add_tensor("experts", raw.reshape(3, 200, -1), raw_dtype=kind)
    write(writer)
    tensors = GgufTensors(GgufFile(tmp_path / "m.gguf"))
    assert tensors.kinds() == (LAYOUTS[name].kind,)
    expected = dequantize(raw, kind).reshape(600, 512)
    out = np.empty(600, row_dtype(tensors.kinds(), 512))
    tensors.read_into("w", out)
    np.testing.assert_array_equal(numbers(out, tensors.kinds()), expected)
    wide = np.empty((200, 2), out.dtype)  # an expert's rows are read into part of an array
    tensors.read_into("experts[1]", wide[:, 1])
    np.testing.assert_array_equal(numbers(wide[:, 1], tensors.kinds()), expected[200:400])


def write(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_quantised(path: Path, types: tuple[str, ...]) -> dict[str, np.ndarray]:
    """A tiny model whose matrices have these types by turns. Returns its numbers."""
    weights = tiny.weights(CONFIG)
    theirs = converted(CONFIG, weights, "llama")
    raw, kinds, decoded = {}, {}, {}
    for place, (ours, name) in enumerate(zip(weights, theirs, strict=True)):
        raw[name], decoded[ours] = theirs[name], weights[ours]
        if weights[ours].ndim == 2:
            kind = types[place % len(types)]
            kinds[name] = GGMLQuantizationType[kind]
            raw[name] = oracle.quantise(theirs[name], kind)
            decoded[ours] = oracle.decode(oracle.quantise(weights[ours], kind), kind)
    fields = {f"llama.{key}": value for key, value in metadata(CONFIG, "llama").items()}
    write_gguf_file(path, "llama", fields, raw, kinds)
    return decoded


MODELS = [
    *((kind,) for kind in ("Q4_0", "Q4_1", "Q5_1", "Q8_0", "IQ4_NL", "Q2_K", "Q4_K", "Q6_K")),
    ("Q4_K", "Q6_K", "Q4_K"),  # kinds differ within a fused matrix and between layers
    ("IQ4_NL", "Q8_0"),
]


@pytest.fixture(params=["kernels", "xla"])
def formats(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The formats of a CPU's kernels, or those of other devices."""
    if request.param == "xla":
        monkeypatch.setattr("jax_engine.operations.table.on_numba", lambda dtype: False)


@pytest.mark.usefixtures("formats")
@pytest.mark.parametrize("types", MODELS, ids="-".join)
@pytest.mark.slow
def test_a_model_computes_with_codes(types: tuple[str, ...], tmp_path: Path) -> None:
    decoded = write_quantised(tmp_path / "m.gguf", types)
    expected = reference_logits(CONFIG, tiny.PROMPT, decoded)
    sizes = []
    for quantization in (None, "dequantized"):
        model = load_model(str(tmp_path / "m.gguf"), quantization=quantization)
        found = PagedRun(model.config, model.graphdef, model.params).feed(tiny.PROMPT)
        np.testing.assert_allclose(found, expected, **TOLERANCE)
        sizes.append(model.num_bytes)
    assert sizes[0] < sizes[1]


@pytest.mark.slow
@pytest.mark.usefixtures("formats")
def test_the_engine_generates_the_tokens_of_the_oracle(tmp_path: Path) -> None:
    decoded = write_quantised(tmp_path / "m.gguf", ("Q4_1",))
    settings: dict[str, Any] = {"max_model_len": 64, "num_gpu_blocks_override": 32}
    llm = LLM(str(tmp_path / "m.gguf"), dtype="float32", skip_tokenizer_init=True, **settings)
    params = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
    prompt = tiny.PROMPT[:9]
    output = llm.generate({"prompt_token_ids": prompt}, params, use_tqdm=False)[0]
    tokens = list(output.outputs[0].token_ids)
    logits = reference_logits(CONFIG, prompt + tokens, decoded)[len(prompt) - 1 : -1]
    assert tokens == logits.argmax(axis=1).tolist()


def test_another_method_is_refused(tmp_path: Path) -> None:
    write_quantised(tmp_path / "m.gguf", ("Q4_0",))
    with pytest.raises(ConfigError, match=r"quantization='awq', but .* is a GGUF file"):
        load_model(str(tmp_path / "m.gguf"), quantization="awq")
    plain = write_checkpoint(tmp_path / "hf", tiny.CONFIGS["plain"])
    with pytest.raises(ConfigError, match="is not quantised"):
        load_model(str(plain), quantization="gptq")
    load_model(str(plain), quantization="dequantized")
