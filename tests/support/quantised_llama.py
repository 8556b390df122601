"""Tiny random Llamas with quantised matrices, and the oracle's decoder of what they stand for."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from reference.quantization import gguf, gptq, smoothquant
from reference.quantization.compressed_tensors import Integers, decode_integers
from reference.transformer import Transformer, TransformerConfig
from tests.models.quantised_files import Tensors, module, write_file
from tests.support.tiny_llama import EOS, random_weights, tiny_config

GROUP = 16
ROUNDED = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}
INT8 = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}
SETTINGS: dict[str, dict[str, Any]] = {
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": False},
    "w8a8": {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "config_groups": {
            "group_0": {"targets": ["Linear"], "weights": INT8, "input_activations": ROUNDED}
        },
        "ignore": ["lm_head"],
    },
}
GGUF = ("Q4_1", "Q8_0", "Q4_0")  # by turns, so that they meet in fused matrices and in stacks


class RoundedInputs(Transformer):
    """The oracle's decoder whose matrices of 8 bits multiply tokens that are rounded to 8 bits."""

    integers: dict[str, Integers]

    def _linear(self, name: str, x: Any) -> Any:
        if name in self.integers:
            return smoothquant.linear(x, self.integers[name])
        return super()._linear(name, x)


def quantised_llama(folder: Path, method: str, **changes: Any) -> tuple[Path, Transformer]:
    """A checkpoint under `folder`, and the reference's decoder of the same weights.

    Args:
        method: "gptq" (in act-order), "w8a8" or "gguf".
    """
    heads = 4 if method == "gguf" else 2  # a panel of 32 rows has one type
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_key_value_heads": heads}
    config = tiny_config(**sizes, **changes)
    weights = random_weights(config)
    folder.mkdir(parents=True)
    if method == "gguf":
        return _gguf(folder / "m.gguf", config, weights)
    tensors: Tensors = {}
    integers: dict[str, Integers] = {}
    for name, values in weights.items():
        if not name.endswith("_proj.weight"):
            tensors[name] = values
            continue
        stem = name.removesuffix(".weight")
        if method == "gptq":
            stored = gptq.quantise(values, 4, GROUP, order=_order(values.shape[1]))
            parts, weights[name] = stored._asdict(), gptq.decode(stored, 4)
        else:
            integers[stem] = smoothquant.quantise(values)
            parts, weights[name] = integers[stem]._asdict(), decode_integers(integers[stem])
        tensors |= module(stem, parts)
    write_file(folder / "model.safetensors", tensors)
    raw = asdict(config) | {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    raw |= {"hidden_act": "silu", "eos_token_id": EOS, "bos_token_id": 1}
    raw["quantization_config"] = SETTINGS[method]
    (folder / "config.json").write_text(json.dumps(raw))
    if method == "gptq":
        return folder, Transformer(config, weights)
    oracle = RoundedInputs(config, weights)
    oracle.integers = integers
    return folder, oracle


def _order(size: int) -> np.ndarray:
    """An order of the inputs. Matrices multiplied by the same inputs share it."""
    return np.random.default_rng(size).permutation(size).astype(np.int32)


def _gguf(
    path: Path, config: TransformerConfig, weights: dict[str, np.ndarray]
) -> tuple[Path, Transformer]:
    from gguf.constants import GGMLQuantizationType  # not everybody has this package

    from tests.models.llama_cpp import converted, metadata, write_gguf_file

    fields = asdict(config)
    theirs = converted(fields, weights, "llama")
    kinds, stored = {}, {}
    for place, (name, ours) in enumerate(zip(theirs, weights, strict=True)):
        stored[name] = theirs[name]
        if theirs[name].ndim == 2:
            kind = GGUF[place % len(GGUF)]
            kinds[name] = GGMLQuantizationType[kind]
            stored[name] = gguf.quantise(theirs[name], kind)
            weights[ours] = gguf.decode(gguf.quantise(weights[ours], kind), kind)
    of_file: dict[str, Any] = {
        f"llama.{key}": value for key, value in metadata(fields, "llama").items()
    }
    of_file |= {"tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": EOS}
    write_gguf_file(path, "llama", of_file, stored, kinds)
    return path, Transformer(config, weights)
