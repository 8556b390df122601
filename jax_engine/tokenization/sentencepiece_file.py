"""Reads tokenizer.model, SentencePiece's own file, without the sentencepiece package.

The file is a protocol buffer: fields, each a number with a kind, and a value. Only what a tokenizer
is made of is read: pieces, and the settings of training and of normalisation.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from jax_engine.broken_file import what_instead
from jax_engine.errors import ConfigError, WeightsError

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
        instead = what_instead(path) or ""
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
