"""The default model in the layouts that the peers read: the same float32 values for all.

SmolLM2-135M-Instruct reaches this project as a GGUF file of 4-bit blocks. They are decoded once:
into a Hugging Face directory (config.json, model.safetensors), and into GGUF files of float32 and
bfloat16 for llama.cpp, with the metadata of the original. For the comparison of quantised files
the same values are quantised anew (Q4_0, Q8_0).
"""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from jax_engine.models.checkpoints.default_model import default_model_path
from jax_engine.models.checkpoints.gguf.gguf_file import GgufFile
from jax_engine.models.checkpoints.gguf.gguf_source import GgufSource, config_from_gguf
from jax_engine.models.model_config import ModelConfig

TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
}


def hf_directory(folder: Path) -> Path:
    """Writes the Hugging Face directory unless it is there."""
    directory = folder / "smollm2-f32"
    config_file = directory / "config.json"
    if config_file.exists():
        return directory
    directory.mkdir(parents=True, exist_ok=True)
    file = GgufFile(default_model_path())
    config = config_from_gguf(file)
    source = GgufSource(file, config)
    tensors = {}
    for name in source.names():
        tensors[name] = np.empty(source.shape(name), np.float32)
        source.read_into(name, tensors[name])
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    config_file.write_text(json.dumps(hf_config(config), indent=1))  # last: it marks the end
    return directory


def hf_config(config: ModelConfig) -> dict[str, Any]:
    """config.json of a Llama."""
    spec = config.spec
    (attention,), (layer,) = spec.attentions, spec.layers
    assert spec.norm is not None
    return {
        "architectures": [config.architecture],
        "model_type": "llama",
        "dtype": "float32",
        "vocab_size": spec.vocab_size,
        "hidden_size": spec.width,
        "intermediate_size": layer.mlp.width,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": attention.num_heads,
        "num_key_value_heads": attention.num_kv_heads,
        "head_dim": attention.head_dim,
        "max_position_embeddings": spec.max_context_len,
        "rms_norm_eps": spec.norm.eps,
        "rope_theta": attention.ropes[0].theta,
        "tie_word_embeddings": spec.tied,
        "hidden_act": "silu",
        "bos_token_id": config.bos_token_id,
        "eos_token_id": list(config.eos_token_ids),
    }


def gguf_file(folder: Path, form: str) -> Path:
    """Writes the GGUF file of that dtype or kind of block unless it is there.

    Norms stay float32, as llama.cpp's.
    """
    from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, LlamaFileType, quants

    path = folder / f"smollm2-{form}.gguf"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    reader = GGUFReader(default_model_path())
    partial = path.with_suffix(".partial")
    writer = GGUFWriter(partial, "llama")
    copy_fields(reader, writer)
    kind_name, file_type = _FORMS[form]
    kind = GGMLQuantizationType[kind_name]
    writer.add_file_type(LlamaFileType[file_type])
    if form.startswith("Q"):
        writer.add_quantization_version(2)  # of GGML's blocks, since 2023
    for tensor in reader.tensors:
        shape = tuple(int(n) for n in reversed(tensor.shape))
        values = quants.dequantize(tensor.data, tensor.tensor_type).reshape(shape)
        if kind_name != "F32" and len(shape) > 1:
            writer.add_tensor(tensor.name, quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(tensor.name, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return partial.rename(path)


def quantised_file(folder: Path, kind: str) -> Path:
    """The file whose weights are in blocks of that kind; the default model's own is Q4_1."""
    return default_model_path() if kind == "Q4_1" else gguf_file(folder, kind)


def bytes_per_token(path: Path) -> int:
    """Weights that a token reads: matrices as the file stores them, a tied embedding once.

    An embedding beside an output matrix is left out: a token reads one row of it.
    """
    tensors = GgufFile(path).tensors
    skipped = "token_embd.weight" if "output.weight" in tensors else ""
    return sum(
        one.num_bytes
        for name, one in tensors.items()
        if sum(n > 1 for n in one.shape) > 1 and name != skipped
    )


# Dtype or kind: the type of matrices, and of the file.
_FORMS = {
    "float32": ("F32", "ALL_F32"),
    "bfloat16": ("BF16", "MOSTLY_BF16"),
    "Q4_0": ("Q4_0", "MOSTLY_Q4_0"),
    "Q8_0": ("Q8_0", "MOSTLY_Q8_0"),
}
# The writer sets the first itself; the others describe the 4-bit blocks that are no more.
_OWN_FIELDS = ("general.architecture", "general.file_type", "general.quantization_version")


def copy_fields(reader: Any, writer: Any, others: Collection[str] = ()) -> None:
    """Copies a GGUF file's metadata, but for `others` and what the writer sets itself."""
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name not in (*_OWN_FIELDS, *others):
            _copy_field(writer, field)


def _copy_field(writer: Any, field: Any) -> None:
    kind = field.types[0]
    sub = field.types[-1] if len(field.types) > 1 else None
    writer.add_key_value(field.name, field.contents(), kind, sub)


def tiny_directory(folder: Path) -> Path:
    """A config.json for random weights, for runs that only see whether everything fits together."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(TINY))
    return folder
