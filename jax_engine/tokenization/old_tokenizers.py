"""Tokenizers of directories without tokenizer.json: the files that older checkpoints have.

tokenizer.model is SentencePiece's (Llama 1 and 2, Baichuan, InternLM), qwen.tiktoken is Qwen 1's;
vocab.json with merges.txt (GPT-2, OPT) is left to transformers, which knows how each model splits.
Code that a checkpoint brings is never run.
"""

import base64
import binascii
import functools
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from tokenizers import Regex, normalizers
from tokenizers import Tokenizer as Backend

from jax_engine.errors import ModelNotFoundError, WeightsError
from jax_engine.file_schema import read_text
from jax_engine.tokenization.added_tokens import added_tokens_file, marked
from jax_engine.tokenization.gguf_tokenizer import backend_from_fields, merges_by_score
from jax_engine.tokenization.schemas import (
    AddedTokenFields,
    GgufTokenizerFields,
    TokenizerConfigFields,
)
from jax_engine.tokenization.sentencepiece_file import SentencePieceModel, read_sentencepiece
from jax_engine.tokenization.token_bytes import BYTE_ALPHABET

_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token")
_QWEN = "qwen.tiktoken"
_QWEN_SPECIAL = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    *(f"<|extra_{number}|>" for number in range(205)),
)
_VOCABULARIES = ("vocab*", "*.model", "*.tiktoken", "tekken.json")
_CONTROL = 3
_BY_HAND = "Give a tokenizer=, or skip_tokenizer_init=True to work with token ids."


def has_old_tokenizer(directory: Path) -> bool:
    return any((directory / name).exists() for name in ("vocab.json", _QWEN))


def backend_without_json(
    directory: Path, fields: TokenizerConfigFields
) -> tuple[Backend, dict[str, str]]:
    """The tokenizer, and the special tokens that its files name.

    Raises:
        ModelNotFoundError: No file is one of those that are read.
        ConfigError: A SentencePiece vocabulary of another type than BPE.
        WeightsError: A file is damaged.
    """
    if (directory / "tokenizer.model").exists():
        return _sentencepiece(directory, fields)
    if (directory / _QWEN).exists():
        return _qwen(directory / _QWEN), dict.fromkeys(("eos_token", "pad_token"), "<|endoftext|>")
    return _by_transformers(directory)


def unpadded(backend: Backend) -> Backend:
    """Removes the lengths of training that some files hold: prompts are not cut or padded."""
    backend.no_padding()
    backend.no_truncation()
    return backend


def _sentencepiece(
    directory: Path, fields: TokenizerConfigFields
) -> tuple[Backend, dict[str, str]]:
    file = directory / "tokenizer.model"
    model = read_sentencepiece(file)
    described = GgufTokenizerFields(
        tokens=model.tokens,
        scores=model.scores,
        token_types=model.kinds,
        add_space_prefix=model.adds_prefix,
        add_bos=fields.add_bos_token,
        add_eos=fields.add_eos_token,
        bos=model.bos,
        eos=model.eos,
        unknown=model.unknown,
    )
    backend = backend_from_fields(described, "llama", str(file))
    first = _before_spaces(model)
    if first:
        backend.normalizer = normalizers.Sequence([*first, backend.normalizer])
    _add_tokens(backend, directory, fields)
    named = {"unk_token": model.tokens[model.unknown]}
    if model.bos is not None:
        named["bos_token"] = model.tokens[model.bos]
    if model.eos is not None:
        named["eos_token"] = model.tokens[model.eos]
    return backend, named


def _before_spaces(model: SentencePieceModel) -> list[Any]:
    """What is done to characters before spaces are made visible."""
    steps: list[Any] = [normalizers.Precompiled(model.charsmap)] if model.charsmap else []
    if model.squeezes:
        steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    return steps


def _add_tokens(backend: Backend, directory: Path, fields: TokenizerConfigFields) -> None:
    """Adds the tokens beside the vocabulary, in the order of their ids. Raises WeightsError."""
    listed = added_tokens_file(directory).items()
    added = {index: AddedTokenFields(content) for content, index in listed}
    added |= {int(index): token for index, token in (fields.added_tokens_decoder or {}).items()}
    for index, token in sorted(added.items()):
        backend.add_tokens([marked(replace(token, normalized=False), special=token.special)])
        found = backend.token_to_id(token.content)
        if found != index:
            raise WeightsError(
                f"{directory}: the added token {token.content!r} should have the id {index}, but "
                f"the next free one is {found}."
            )


def _qwen(file: Path) -> Backend:
    """Qwen 1's file has a line for each token, with its bytes in base 64 and its number."""
    tokens = []
    for number, line in enumerate(read_text(file).splitlines()):
        try:
            token, rank = line.split()
            tokens.append("".join(_characters()[byte] for byte in base64.b64decode(token)))
            if int(rank) != number:
                raise ValueError(f"its number is {rank}")
        except (ValueError, binascii.Error) as error:
            raise WeightsError(f"{file}, line {number + 1} is damaged: {error}.") from error
    merges = merges_by_score(
        {token: rank for rank, token in enumerate(tokens)}, range(0, -len(tokens), -1)
    )
    every = [*tokens, *_QWEN_SPECIAL]
    fields = GgufTokenizerFields(
        tokens=every,
        token_types=[1] * len(tokens) + [_CONTROL] * len(_QWEN_SPECIAL),
        merges=[" ".join(pair) for pair in merges],
        pre="qwen2",
    )
    return backend_from_fields(fields, "gpt2", str(file))


@functools.cache
def _characters() -> dict[int, str]:
    return {byte: character for character, byte in BYTE_ALPHABET.items()}


def _by_transformers(directory: Path) -> tuple[Backend, dict[str, str]]:
    """What transformers makes of the files; it knows the models' names."""
    if not any(path for pattern in _VOCABULARIES for path in directory.glob(pattern)):
        raise ModelNotFoundError(f"{directory} has no vocabulary of a tokenizer. {_BY_HAND}")
    try:
        from transformers import AutoTokenizer  # slow to import: only for old checkpoints

        made = AutoTokenizer.from_pretrained(str(directory), trust_remote_code=False)
        backend = unpadded(made.backend_tokenizer)
    except Exception as error:  # it raises errors of many types
        raise ModelNotFoundError(
            f"{directory} has no tokenizer.json or tokenizer.model, and transformers could not "
            f"make a tokenizer of its files ({type(error).__name__}: {error}). {_BY_HAND}"
        ) from error
    named = {name: getattr(made, name, None) for name in _NAMED}
    return backend, {name: str(token) for name, token in named.items() if token}
