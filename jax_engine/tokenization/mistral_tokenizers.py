"""Mistral's own tokenizers: tekken.json, and SentencePiece's tokenizer.model.v3 and its like.

tekken.json has the bytes of each token by rank, as tiktoken does: of two tokens side by side, those
are joined whose whole has the lowest rank. Control tokens have the first ids, in as many places as
the file says; a place without one is `<SPECIAL_n>`. Of the vocabulary so many tokens count as the
file's `default_vocab_size` has room for.
"""

import base64
import re
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta
from tokenizers import Regex, decoders, processors
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

from jax_engine.errors import ConfigError, WeightsError
from jax_engine.models.checkpoints.file_schema import Count, Size, checked, read_json, short
from jax_engine.models.checkpoints.weight_layouts import files_of, is_mistral
from jax_engine.tokenization.gguf_tokenizer import merges_by_score
from jax_engine.tokenization.old_tokenizers import backend_of_sentencepiece
from jax_engine.tokenization.token_bytes import BYTE_ALPHABET
from jax_engine.tokenization.tokenizer_fields import TokenizerConfigFields

TEKKEN = "tekken.json"
_MODEL = re.compile(r"tokenizer\.model(?:\.v(\d+)(?:m\d+)?)?")
_VERSION = re.compile(r"v(\d+)(?:m\d+)?")
_FIRST_WITH_LIST = 11  # files of earlier versions may leave out their control tokens
_NAMED = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
# The control tokens of files that do not list them, in the order of their ids.
_CONTROL = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]"),
    *("[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
    "[TOOL_CONTENT]",
)


class RankedToken(msgspec.Struct, frozen=True):
    """A token of the vocabulary: its bytes, in base 64."""

    rank: Count
    token_bytes: Annotated[str, Meta(max_length=1366)]  # finding merges takes quadratic time


class ControlToken(msgspec.Struct, frozen=True):
    """A token that is not text."""

    rank: Count
    token_str: Annotated[str, Meta(min_length=1, max_length=1024)]


class TekkenConfig(msgspec.Struct, frozen=True):
    """How the tokens are used."""

    pattern: str
    default_vocab_size: Size
    default_num_special_tokens: Count
    version: str


class TekkenFields(msgspec.Struct, frozen=True):
    """tekken.json."""

    config: TekkenConfig
    vocab: Annotated[list[RankedToken], Meta(min_length=1)]
    special_tokens: list[ControlToken] | None = None


class MistralTokenizer(NamedTuple):
    """A tokenizer of Mistral's.

    Attributes:
        named: special tokens by name (bos_token, eos_token, ...).
        version: that of its format of chats.
    """

    backend: Backend
    named: dict[str, str]
    version: int


def mistral_file(names: Collection[str], *, wanted: bool) -> str | None:
    """The file of Mistral's tokenizer that is read, as vLLM chooses; None: another's is.

    Args:
        names: those of a directory's files.
        wanted: whether `tokenizer_mode` asks for it.
    """
    models = [
        one for one in names if _MODEL.fullmatch(one) and (wanted or one != "tokenizer.model")
    ]
    latest = sorted(models, key=_version_of_model)
    found = TEKKEN if TEKKEN in names else latest[-1] if latest else None
    others = any(one in names for one in ("tokenizer.json", "tokenizer.model"))
    return found if wanted or is_mistral(names) or not others else None


def read_mistral(
    directory: Path, fields: TokenizerConfigFields, *, wanted: bool
) -> MistralTokenizer | None:
    """Mistral's tokenizer of a directory; None if another one is read.

    Raises:
        ConfigError: `wanted`, and there is none; or a file of a version that is not known.
        WeightsError: a file is damaged.
    """
    name = mistral_file(files_of(directory, None), wanted=wanted)
    if name is None and not wanted:
        return None
    if name is None:
        raise ConfigError(
            f'tokenizer_mode="mistral", but {directory} has no {TEKKEN} and no tokenizer.model.v3 '
            "or the like: add one of them, or leave tokenizer_mode out."
        )
    if name == TEKKEN:
        return _tekken(directory / name)
    backend, named = backend_of_sentencepiece(directory / name, directory, fields)
    return MistralTokenizer(backend, named, _version_of_model(name))


def _version_of_model(name: str) -> int:
    """tokenizer.model itself is of the first version."""
    match = _MODEL.fullmatch(name)
    return int(match[1]) if match and match[1] else 1


def _tekken(file: Path) -> MistralTokenizer:
    fields = checked(read_json(file), TekkenFields, str(file), WeightsError)
    match = _VERSION.fullmatch(fields.config.version)
    if match is None:
        raise ConfigError(
            f"{file}: config.version {short(fields.config.version)} is not supported; known: v and "
            "a number."
        )
    version = int(match[1])
    control, ranked = _control(fields, version, file), _ranked(fields, file)
    try:
        backend = _byte_pairs(fields.config.pattern, control, ranked)
    except Exception as error:  # the library raises bare Exceptions
        raise WeightsError(f"{file}: its fields make no tokenizer: {error}.") from error
    named = {name: token for name, token in _NAMED.items() if token in control}
    return MistralTokenizer(backend, named, version)


def _control(fields: TekkenFields, version: int, file: Path) -> list[str]:
    """The control tokens by id. Raises WeightsError."""
    places = fields.config.default_num_special_tokens
    listed = fields.special_tokens
    if listed is None:
        if version >= _FIRST_WITH_LIST:
            raise WeightsError(f"{file}: special_tokens is missing.")
        listed = [ControlToken(rank, token) for rank, token in enumerate(_CONTROL[:places])]
    found = {one.rank: one.token_str for one in listed}
    if places > fields.config.default_vocab_size or max(found, default=0) >= max(places, 1):
        raise WeightsError(
            f"{file}: config.default_num_special_tokens must be at most default_vocab_size, "
            f"{fields.config.default_vocab_size}, and above each rank of special_tokens, got "
            f"{places}."
        )
    every = [found.get(rank, f"<SPECIAL_{rank}>") for rank in range(places)]
    if len(found) != len(listed) or len({*every}) != places:
        raise WeightsError(f"{file}: special_tokens must have each token and each rank once.")
    return every


def _ranked(fields: TekkenFields, file: Path) -> list[bytes]:
    """The bytes of the tokens that count, by rank. Raises WeightsError."""
    count = fields.config.default_vocab_size - fields.config.default_num_special_tokens
    found = dict[int, bytes]()
    for token in fields.vocab:
        if token.rank < count:
            try:
                found[token.rank] = base64.b64decode(token.token_bytes, validate=True)
            except ValueError as error:  # binascii.Error is one
                raise WeightsError(f"{file}: token {token.rank} is damaged: {error}.") from error
    lost = next((rank for rank in range(count) if not found.get(rank)), None)
    if lost is not None:
        raise WeightsError(f"{file}: vocab has no token of rank {lost}; expected {count}.")
    ranked = [found[rank] for rank in range(count)]
    if len({*ranked}) != count or not {bytes([byte]) for byte in range(256)} <= {*ranked}:
        raise WeightsError(f"{file}: vocab must have each byte, and each token once.")
    return ranked


def _byte_pairs(pattern: str, control: list[str], ranked: list[bytes]) -> Backend:
    characters = {byte: character for character, byte in BYTE_ALPHABET.items()}
    tokens = ["".join(characters[byte] for byte in one) for one in ranked]
    first = len(control)
    by_rank = {token: rank for rank, token in enumerate(tokens)}
    merges = merges_by_score(by_rank, range(0, -len(tokens), -1))
    vocabulary: dict[str, int] = {token: first + rank for token, rank in by_rank.items()}
    vocabulary |= {token: number for number, token in enumerate(control)}
    if len(vocabulary) < first + len(tokens):
        raise ValueError("a control token is in vocab, too")
    backend = Backend(BPE(vocab=vocabulary, merges=merges, ignore_merges=True))
    split: Any = Split(Regex(pattern), behavior="isolated")
    backend.pre_tokenizer = Sequence([split, ByteLevel(add_prefix_space=False, use_regex=False)])
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(control)
    begin = _NAMED["bos_token"]
    if begin in control:
        backend.post_processor = processors.TemplateProcessing(
            single=[begin, "$A"],
            pair=[begin, "$A", "$B"],
            special_tokens=[(begin, vocabulary[begin])],
        )
    return backend
