"""Tokenizers of directories without tokenizer.json: the files that older checkpoints have.

tokenizer.model is SentencePiece's (Llama 1 and 2, Baichuan, InternLM), qwen.tiktoken is Qwen 1's,
vocab.txt is BERT's; vocab.json with merges.txt (GPT-2, OPT) is left to transformers, which knows
how each model splits.
Code that a checkpoint brings is never run.

tokenizer.model is read without the sentencepiece package. The file is a protocol buffer: fields,
each a number with a kind, and a value. Only what a tokenizer is made of is read: pieces, and the
settings of training and of normalisation.
"""

import base64
import binascii
import functools
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace
from tokenizers import Regex, normalizers
from tokenizers import Tokenizer as Backend

from jax_engine.errors import ConfigError, ModelNotFoundError, WeightsError
from jax_engine.models.checkpoints.file_schema import describe_broken_file, read_text
from jax_engine.tokenization.gguf_tokenizer import backend_from_fields, merges_by_score
from jax_engine.tokenization.token_bytes import BYTE_ALPHABET
from jax_engine.tokenization.tokenizer_fields import (
    AddedTokenFields,
    Described,
    GgufTokenizerFields,
    TokenizerConfigFields,
    added_tokens_file,
    marked,
)
from jax_engine.tokenization.word_pieces import (
    VOCABULARY,
    backend_of_word_pieces,
    has_word_pieces,
)

BPE = 2  # of TrainerSpec.model_type; Unigram is 1, and the default
_KINDS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
MAX_BYTES = 64 << 20  # the largest vocabularies take 5 MB


class SentencePieceModel(NamedTuple):
    """A vocabulary that merges pieces by score.

    Attributes:
        kinds: for each piece, 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
        adds_prefix: whether a space is put before a text.
        squeezes: whether spaces at the ends go, and several become one.
        charsmap: how characters are normalised, in SentencePiece's own compiled form.
        bos, eos, unknown: ids of pieces; None: none.
    """

    tokens: list[str]
    scores: list[float]
    kinds: list[int]
    adds_prefix: bool
    squeezes: bool
    charsmap: bytes
    bos: int | None
    eos: int | None
    unknown: int


def read_sentencepiece(path: Path) -> SentencePieceModel:
    """
    Raises:
        WeightsError: The file is unreadable or damaged.
        ConfigError: It is of another type than BPE.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES} bytes")
        return _model(path.read_bytes(), path)
    except ConfigError:  # a ValueError, too
        raise
    except (OSError, ValueError, IndexError, struct.error) as error:
        instead = describe_broken_file(path) or ""
        raise WeightsError(
            f"{path} is no SentencePiece model: {error}. {instead}".rstrip()
        ) from error


def _model(data: bytes, path: Path) -> SentencePieceModel:
    tokens, scores, kinds = list[str](), list[float](), list[int]()
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    for number, value in _fields(data):
        if number == 1:
            piece = dict(_fields(_bytes(value)))
            tokens.append(_bytes(piece.get(1, b"")).decode())
            (score,) = struct.unpack("<f", _bytes(piece.get(2, bytes(4))))
            scores.append(score)
            kinds.append(_int(piece.get(3, 1)))
        elif number == 2:
            trainer = dict(_fields(_bytes(value)))
        elif number == 3:
            normalizer = dict(_fields(_bytes(value)))
    if not tokens:
        raise ValueError("it has no pieces")
    kind = _int(trainer.get(3, 1))
    if kind != BPE:
        raise ConfigError(
            f"{path}: SentencePiece type {_KINDS.get(kind, kind)!r} is not supported; known: 'bpe'."
            " Where the sentencepiece package is installed, transformers makes a tokenizer.json of "
            "it: AutoTokenizer.from_pretrained(directory).save_pretrained(directory)."
        )
    bos, eos = _int(trainer.get(41, 1)), _int(trainer.get(42, 2))
    return SentencePieceModel(
        tokens=tokens,
        scores=scores,
        kinds=kinds,
        adds_prefix=bool(normalizer.get(3, True)),
        squeezes=bool(normalizer.get(4, True)),
        charsmap=_bytes(normalizer.get(2, b"")),
        bos=bos if bos < len(tokens) else None,
        eos=eos if eos < len(tokens) else None,
        unknown=min(_int(trainer.get(40, 0)), len(tokens) - 1),
    )


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The number and value of each field. Raises ValueError, IndexError."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        kind = key & 7
        if kind == _VARINT:
            value: int | bytes
            value, position = _varint(data, position)
        else:
            size = {_FIXED64: 8, _FIXED32: 4}.get(kind)
            if kind == _BYTES:
                size, position = _varint(data, position)
            if size is None or position + size > len(data):
                raise ValueError(f"damaged at byte {position} of {len(data)}")
            value, position = data[position : position + size], position + size
        yield key >> 3, value


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A number in groups of seven bits, lowest first, and where the next field begins."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError(f"damaged at byte {position} of {len(data)}")


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a field has the wrong kind")
    return value


def _int(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ValueError("a field has the wrong kind")
    return value


_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token")
_QWEN = "qwen.tiktoken"
_QWEN_SPECIAL = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    *(f"<|extra_{number}|>" for number in range(205)),
)
_VOCABULARIES = ("vocab*", "*.model", "*.tiktoken")
_CONTROL = 3
_BY_HAND = "Give a tokenizer=, or skip_tokenizer_init=True to work with token ids."


def has_old_tokenizer(directory: Path) -> bool:
    return any(
        (directory / name).exists() for name in ("vocab.json", VOCABULARY, _QWEN, "tekken.json")
    )


def backend_without_json(
    directory: Path, fields: TokenizerConfigFields, described: Described
) -> tuple[Backend, dict[str, str]]:
    """The tokenizer, and the special tokens that its files name.

    Raises:
        ModelNotFoundError: No file is one of those that are read.
        ConfigError: A SentencePiece vocabulary of another type than BPE, or a setting of BERT's
            tokenizer that is not supported.
        WeightsError: A file is damaged.
    """
    if (directory / "tokenizer.model").exists():
        return backend_of_sentencepiece(directory / "tokenizer.model", directory, fields)
    if (directory / _QWEN).exists():
        return _qwen(directory / _QWEN), dict.fromkeys(("eos_token", "pad_token"), "<|endoftext|>")
    if has_word_pieces(directory, fields):
        return backend_of_word_pieces(directory, fields, described)
    return _by_transformers(directory)


def unpadded(backend: Backend) -> Backend:
    """Removes the lengths of training that some files hold: prompts are not cut or padded."""
    backend.no_padding()
    backend.no_truncation()
    return backend


def backend_of_sentencepiece(
    file: Path, directory: Path, fields: TokenizerConfigFields
) -> tuple[Backend, dict[str, str]]:
    """The tokenizer of a SentencePiece model, with the tokens that the directory's files add.

    Raises:
        ConfigError: A vocabulary of another type than BPE.
        WeightsError: A file is damaged.
    """
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
    backend.normalizer = normalizers.Sequence([*_before_spaces(model), backend.normalizer])
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
