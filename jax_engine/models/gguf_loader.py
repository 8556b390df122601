"""Configuration and weights of a GGUF file of llama.cpp's `llama` architecture."""

import math
import re
from collections.abc import Collection
from typing import Any

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from jax_engine.errors import ConfigError, WeightsError
from jax_engine.file_schema import checked, short
from jax_engine.models.config import ModelConfig
from jax_engine.models.gguf_file import GgufFile
from jax_engine.models.registry import config_from_hf
from jax_engine.models.schemas import GgufFields
from jax_engine.weights.row_orders import rope_halves
from jax_engine.weights.transforms import Tensor, Transform

_NAMES = {  # Hugging Face: GGUF, without .weight or .bias
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_HF_NAMES = {gguf: hf for hf, gguf in _NAMES.items()}
LLAMA, MISTRAL = "LlamaForCausalLM", "MistralForCausalLM"
_ROPE_FACTORS = "rope_freqs.weight"
_KINDS = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
SUPPORTED_TYPES = tuple(GGMLQuantizationType[kind] for kind in _KINDS)
_CHUNK = 1 << 17  # values decoded at a time


def config_from_gguf(file: GgufFile) -> ModelConfig:
    """ModelConfig from metadata (and Llama 3's RoPE tensor). Raises ConfigError, WeightsError."""
    architecture = file.metadata.get("general.architecture")
    if architecture != "llama":
        raise ConfigError(
            f"{file.path}: GGUF architecture {short(architecture)} is not supported; known: llama."
        )
    if file.metadata.get("llama.expert_count"):
        raise ConfigError(f"{file.path}: mixture-of-experts models are not supported.")
    fields = checked(file.metadata, GgufFields, str(file.path))
    eos = (fields.eos_token_id, fields.eot_token_id)
    return config_from_hf(
        {
            "architectures": [MISTRAL if fields.sliding_window else LLAMA],
            "vocab_size": _vocab_size(file),
            "hidden_size": fields.embedding_length,
            "intermediate_size": fields.feed_forward_length,
            "num_hidden_layers": fields.block_count,
            "num_attention_heads": fields.head_count,
            "num_key_value_heads": fields.head_count_kv or fields.head_count,
            "head_dim": fields.key_length,
            "max_position_embeddings": fields.context_length,
            "rms_norm_eps": _shortest(fields.rms_epsilon),
            "rope_parameters": _rope(file, fields),
            "tie_word_embeddings": "output.weight" not in file.tensors,
            "sliding_window": fields.sliding_window,
            "attention_bias": "blk.0.attn_q.bias" in file.tensors,
            "mlp_bias": "blk.0.ffn_gate.bias" in file.tensors,
            "eos_token_id": list(dict.fromkeys(token for token in eos if token is not None)),
            "bos_token_id": fields.bos_token_id,
        }
    )


def _vocab_size(file: GgufFile) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise WeightsError(f"{file.path}: tensor token_embd.weight is missing.")
    return embedding.shape[0]


def _shortest(value: float) -> float:
    """The shortest decimal of a float32: 1e-05 rather than 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def _rope(file: GgufFile, fields: GgufFields) -> dict[str, Any]:
    """The rotary embedding as `rope_parameters` describe it."""
    rope: dict[str, Any] = {"rope_theta": _shortest(fields.freq_base)}
    if _ROPE_FACTORS in file.tensors:
        # The factor has no effect: the file holds what follows from it.
        return rope | {
            "rope_type": "llama3",
            "factor": 1.0,
            "frequency_factors": _rope_factors(file),
        }
    linear = "none" if fields.scale_linear is None else "linear"
    kind = linear if fields.scaling_type is None else fields.scaling_type
    factor = fields.scale_linear if fields.scaling_factor is None else fields.scaling_factor
    if kind == "none" or factor == 0:
        return rope
    factor = 1.0 if factor is None else factor
    rope |= {"rope_type": kind, "factor": _shortest(factor)}
    if fields.scaling_original_context:
        rope["original_max_position_embeddings"] = fields.scaling_original_context
    if kind == "yarn" and fields.scaling_attention_factor is not None:
        # llama.cpp multiplies it into YaRN's own factor
        own = 1.0 + 0.1 * float(np.log(factor))
        rope["attention_factor"] = _shortest(fields.scaling_attention_factor) * own
    return rope


def _rope_factors(file: GgufFile) -> list[float]:
    """Llama 3's divisors of the frequencies. Raises WeightsError if one is not positive."""
    values = decode(file, _ROPE_FACTORS, 0, math.prod(file.tensors[_ROPE_FACTORS].shape))
    wrong = values[~((values > 0) & np.isfinite(values))]
    if wrong.size:
        raise WeightsError(
            f"{file.path}, tensor {_ROPE_FACTORS}: values must be positive, got {wrong[0]}."
        )
    found: list[float] = values.tolist()
    return found


def decode(file: GgufFile, name: str, start: int, stop: int) -> np.ndarray:
    """Values start..stop - 1 of a tensor in float32, flat; both are multiples of its block size.

    Raises:
        WeightsError: The tensor's block type is not supported.
    """
    tensor = file.tensors[name]
    if tensor.type not in SUPPORTED_TYPES:
        raise WeightsError(
            f"{file.path}, tensor {name}: block type {tensor.type.name} is not supported; "
            f"known: {', '.join(_KINDS)}."
        )
    block_size, block_bytes = GGML_QUANT_SIZES[tensor.type]
    first = tensor.offset + start // block_size * block_bytes
    raw = file.data[first : tensor.offset + stop // block_size * block_bytes]
    values: np.ndarray = dequantize(raw[None], tensor.type)
    return values.reshape(-1)


class GgufTensors:
    """The tensors of a GGUF file, decoded, with its own names and layout."""

    def __init__(self, file: GgufFile):
        self.location = file.path
        self._file = file

    def names(self) -> Collection[str]:
        return [name for name in self._file.tensors if name != _ROPE_FACTORS]

    def shape(self, name: str) -> tuple[int, ...]:
        return self._file.tensors[name].shape

    def describe(self, name: str) -> str:
        return f"{self.location}, tensor {name}"

    def read_into(self, name: str, out: np.ndarray) -> None:
        """Decodes chunk by chunk, so that the temporaries stay in the CPU's cache."""
        contiguous = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
        flat = contiguous.reshape(-1)
        for start in range(0, flat.size, _CHUNK):
            stop = min(start + _CHUNK, flat.size)
            flat[start:stop] = decode(self._file, name, start, stop)
        if contiguous is not out:
            out[...] = contiguous


class GgufSource:
    """The tensors of a GGUF file under Hugging Face's names and in Hugging Face's layout.

    Rows of q and k are reordered from llama.cpp's interleaved RoPE order to halves.
    """

    def __init__(self, file: GgufFile, config: ModelConfig):
        self.location = file.path
        self._tensors = GgufTensors(file)
        self._gguf_names = {_hf_name(name): name for name in self._tensors.names()}
        spec = config.spec
        self._heads = {"attn_q": spec.num_heads, "attn_k": spec.num_kv_heads}
        self._head_dim = spec.head_dim

    def names(self) -> Collection[str]:
        return self._gguf_names.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensors.shape(self._gguf_names[name])

    def describe(self, name: str) -> str:
        return self._tensors.describe(self._gguf_names[name])

    def read_into(self, name: str, out: np.ndarray) -> None:
        self._transform(self._gguf_names[name]).read_into(self._tensors, out, {})

    def _transform(self, gguf_name: str) -> Transform:
        heads = self._heads.get(gguf_name.split(".")[-2])
        if heads is None:
            return Tensor(gguf_name)
        return rope_halves(gguf_name, heads, self._head_dim)


def _hf_name(gguf_name: str) -> str:
    """blk.3.attn_q.weight -> model.layers.3.self_attn.q_proj.weight; unknown names unchanged."""
    stem, _, suffix = gguf_name.rpartition(".")
    block = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
    if block and block[2] in _HF_NAMES:
        return f"model.layers.{block[1]}.{_HF_NAMES[block[2]]}.{suffix}"
    return f"{_HF_NAMES[stem]}.{suffix}" if stem in _HF_NAMES else gguf_name
