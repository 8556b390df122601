"""Small tokenizers of each kind, made here: no download."""

from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from jax_engine.tokenization.gguf_tokenizer import backend_from_gguf
from jax_engine.tokenization.tokenizer import Tokenizer
from tests.support.byte_tokenizer import byte_alphabet

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6


def byte_level_metadata(pre: str = "smollm") -> dict[str, Any]:
    """GGUF fields of a byte-level vocabulary: 3 control tokens, 256 bytes, a few merges."""
    merges = ["h e", "l l", "he ll", "Ġ w", "â Ĥ", "âĤ ¬", "1 2"]
    tokens = ["<|end|>", "<|user|>", "<|bos|>", *byte_alphabet().values()]
    merged = [merge.replace(" ", "") for merge in merges]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens + merged,
        "tokenizer.ggml.token_type": [CONTROL] * 3 + [NORMAL] * (256 + len(merged)),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.bos_token_id": 2,
    }


def sentencepiece_metadata() -> dict[str, Any]:
    """GGUF fields of a vocabulary with byte fallback and scores in place of merges."""
    words = [
        "\u2581", "h", "e", "l", "o", "w", "he", "ll", "hell", "hello", "\u2581hello", "\u20ac",
    ]  # fmt: skip
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    scores = [0.0] * 259 + [-float(len(words) - index) for index in range(len(words))]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * 12,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }


def word_pieces() -> Tokenizer:
    """A tokenizer that is none of bytes: text depends on what stands before a token."""
    vocabulary = {"[UNK]": 0, "hel": 1, "##lo": 2, "world": 3, "caf\u00e9": 4, "##s": 5, "!": 6}
    backend = Backend(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.decoder = decoders.WordPiece(cleanup=False)
    backend.add_special_tokens(["[SEP]"])  # 7
    return Tokenizer(backend)


@pytest.fixture(params=["byte-level", "byte-fallback", "word-pieces"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    if request.param == "word-pieces":
        return word_pieces()
    level = request.param == "byte-level"
    metadata = byte_level_metadata() if level else sentencepiece_metadata()
    return Tokenizer(backend_from_gguf(metadata), special_tokens={"eos_token": "</s>"})
