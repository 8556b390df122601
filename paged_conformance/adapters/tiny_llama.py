"""A tiny random Llama on disk, which several adapters serve: the same weights in every process.

Its tokenizer's tokens are bytes: letters, digits, and some that are whole characters only together.
"""

import json
import struct
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

SIZES: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 256,
}
EOS = 2
SPECIAL = ["<pad>", "<s>", "</s>"]
BYTES = [
    *range(33, 33 + 81),
    0x20,
    0xC3,
    0xA9,
    0xBC,
    0xE2,
    0x82,
    0xAC,
    0xF0,
    0x9F,
    0x98,
    0x80,
    0x0A,
]
_FOLDER: list[tempfile.TemporaryDirectory[str]] = []


def weights(sizes: dict[str, Any] = SIZES) -> dict[str, np.ndarray]:
    """By their Hugging Face names, in float32. Logits are far apart, so that ties are rare."""
    rng = np.random.default_rng(0)
    width, ffn, vocab = sizes["hidden_size"], sizes["intermediate_size"], sizes["vocab_size"]
    queries = sizes["num_attention_heads"] * sizes["head_dim"]
    keys = sizes["num_key_value_heads"] * sizes["head_dim"]
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens": (vocab, width),
        "model.norm": (width,),
        "lm_head": (vocab, width),
    }
    for layer in range(sizes["num_hidden_layers"]):
        name = f"model.layers.{layer}"
        shapes |= {
            f"{name}.input_layernorm": (width,),
            f"{name}.post_attention_layernorm": (width,),
            f"{name}.self_attn.q_proj": (queries, width),
            f"{name}.self_attn.k_proj": (keys, width),
            f"{name}.self_attn.v_proj": (keys, width),
            f"{name}.self_attn.o_proj": (width, queries),
            f"{name}.mlp.gate_proj": (ffn, width),
            f"{name}.mlp.up_proj": (ffn, width),
            f"{name}.mlp.down_proj": (width, ffn),
        }
    made = {}
    for name, shape in shapes.items():
        values = rng.standard_normal(shape) * (0.25 if len(shape) > 1 else 0.1)
        made[f"{name}.weight"] = (values + name.endswith("norm")).astype(np.float32)
    return made


def folder() -> Path:
    """A checkpoint with config.json, model.safetensors, tokenizer.json and weights.npz."""
    if not _FOLDER:
        _FOLDER.append(tempfile.TemporaryDirectory(prefix="paged-conformance-"))
        path = Path(_FOLDER[0].name)
        made = weights()
        save(path, SIZES, made, tokenizer(pieces(), []))
        np.savez(path / "weights.npz", **made)  # type: ignore[arg-type]
    return Path(_FOLDER[0].name)


def save(
    path: Path,
    sizes: dict[str, Any],
    made: dict[str, np.ndarray],
    tokens: dict[str, Any],
    **more: Any,
) -> None:
    """Writes a checkpoint.

    Args:
        made: The weights.
        tokens: What tokenizer.json says.
        more: What tokenizer_config.json says besides.
    """
    config = sizes | {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "bos_token_id": 1, "eos_token_id": EOS, "pad_token_id": 0, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "float32",
    }  # fmt: skip
    said = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"} | more
    for name, value in (("config", config), ("tokenizer", tokens), ("tokenizer_config", said)):
        (path / f"{name}.json").write_text(json.dumps(value))
    _save_safetensors(path / "model.safetensors", made)


def pieces() -> list[str]:
    """The tokens as byte-level BPE writes them."""
    return SPECIAL + [letter(byte) for byte in BYTES]


def letter(byte: int) -> str:
    """A byte as byte-level BPE writes it: those without a letter get one from 256 on."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return chr(byte) if byte in plain else chr(256 + others.index(byte))


def tokenizer(known: list[str], merges: list[tuple[str, str]]) -> dict[str, Any]:
    """What tokenizer.json says of these tokens; the first ones are SPECIAL."""
    vocabulary = {piece: number for number, piece in enumerate(known)}
    special = [
        {"id": number, "content": piece, "special": True, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False}
        for number, piece in enumerate(SPECIAL)
    ]  # fmt: skip
    level = {
        "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False
    }  # fmt: skip
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
        "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            "ignore_merges": False, "vocab": vocabulary,
            "merges": [list(pair) for pair in merges],
        },
    }  # fmt: skip


def _save_safetensors(path: Path, made: dict[str, np.ndarray]) -> None:
    """Its format: the length of a JSON header, the header, and the bytes."""
    header, start = {}, 0
    for name, array in made.items():
        end = start + array.nbytes
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [start, end]}
        start = end
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in made.values():
            file.write(array.tobytes())
