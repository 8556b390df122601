"""GGUF files as models: `open_gguf`, and the tokens that end what a file's model says.

Importing this module does not need the `gguf` package; the files beside it do:

    gguf_file.py      metadata and table of tensors, of one file or of several parts
    gguf_tensors.py   a tensor's numbers, or its blocks as rows of codes
    header.py         the metadata, as fields of config.json, and what an architecture declares
    architectures.py  a declaration for each of llama.cpp's architectures
    gguf_source.py    configuration and tensors by Hugging Face's names

Metadata name up to three tokens that end a text: of the sequence, of a turn (eot), of a message
(eom). Many files name one only, where a chat template writes another; llama.cpp knows them by their
text, and so does this.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jax_engine.errors import need

if TYPE_CHECKING:
    from jax_engine.models.checkpoints.gguf.gguf_file import GgufFile


KEYS = tuple(f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom"))
_TEXTS = frozenset(
    (
        *("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>"),
        *("<end_of_turn>", "<turn|>", "<eos>", "<|endoftext|>", "<|end_of_text|>"),
        *("<|flush|>", "<|calls|>", "< EOT >", "_<EOT>", "[EOT]", "[EOS]", "<end_of_utterance>"),
    )
)
# gpt-oss ends each of its messages with <|end|>, and its turn with one of the others.
_OF_TURNS, _OF_MESSAGES = {"<|return|>", "<|call|>"}, "<|end|>"


def ends_by_text(tokens: Sequence[str]) -> list[int]:
    """Ids of the tokens whose text is that of an end, in their order."""
    found = {
        token: index
        for index, token in enumerate(tokens)
        if isinstance(token, str) and token in _TEXTS
    }
    if found.keys() >= _OF_TURNS:
        found.pop(_OF_MESSAGES, None)
    return list(found.values())


def end_tokens(metadata: Mapping[str, Any]) -> list[int]:
    """Ids of all end tokens of a file: those that it names first, then those found by text."""
    named = [metadata[key] for key in KEYS if metadata.get(key) is not None]
    tokens = metadata.get("tokenizer.ggml.tokens")
    by_text = ends_by_text(tokens) if isinstance(tokens, list) else []
    return list(dict.fromkeys((*named, *by_text)))


def open_gguf(path: Path) -> "GgufFile":
    """A file with its tensors; of a split one, the first part, with the tensors of all.

    Raises:
        MissingPackageError: The `gguf` package is not installed.
        WeightsError: As for `GgufFile` and `join_parts`.
    """
    need("gguf", f"{path}, a GGUF file,")
    from jax_engine.models.checkpoints.gguf.gguf_file import GgufFile, join_parts

    return join_parts(GgufFile(path))
