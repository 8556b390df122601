"""BERT's tokenizer from vocab.txt, the only vocabulary that older checkpoints of BERT have.

The file has a token in each line; the number of the line is its id. A text is cleaned, set in lower
case unless tokenizer_config.json says otherwise, and split at spaces and punctuation. Each word is
then cut into the longest pieces that are in the vocabulary; those behind the first begin with "##".
Other models have a vocab.txt too, which they read in other ways: the names of the tokenizer's class
and of the model tell them apart.
"""

import os
from pathlib import Path

import msgspec
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from jax_engine.errors import ConfigError, WeightsError
from jax_engine.models.checkpoints.file_schema import checked, describe_broken_file, read_json
from jax_engine.tokenization.tokenizer_fields import (
    Described,
    TokenizerConfigFields,
    add_tokens,
    marked,
)

VOCABULARY = "vocab.txt"
MAX_BYTES = 64 << 20  # the largest vocabularies take 5 MB
_CLASSES = ("BertTokenizer", "BertTokenizerFast")
_MODELS = (None, "bert", "nomic_bert")  # by model_type, where no class is named
_SPECIAL = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "cls", "sep", "pad", "mask")}
_NEEDED = ("unk_token", "cls_token", "sep_token")


class ModelFields(msgspec.Struct, frozen=True):
    """What config.json says of the tokenizer."""

    model_type: str | None = None
    tokenizer_class: str | None = None


def has_word_pieces(directory: Path, fields: TokenizerConfigFields) -> bool:
    """Whether vocab.txt is there, and is BERT's. Raises WeightsError if config.json is damaged."""
    if not os.path.lexists(directory / VOCABULARY):  # a link to nothing is a broken tokenizer
        return False
    config = directory / "config.json"
    raw = read_json(config) if config.exists() else {}
    model = checked(raw, ModelFields, str(config), WeightsError)
    named = fields.tokenizer_class or model.tokenizer_class
    return model.model_type in _MODELS if named is None else named in _CLASSES


def backend_of_word_pieces(
    directory: Path, fields: TokenizerConfigFields, described: Described
) -> tuple[Backend, dict[str, str]]:
    """The tokenizer, and its special tokens by name.

    Raises:
        ConfigError: tokenizer_config.json turns the split at punctuation off.
        WeightsError: The file is unreadable, or lacks a token that every text needs.
    """
    if fields.do_basic_tokenize is False:
        raise ConfigError(
            f"{directory}: do_basic_tokenize False in tokenizer_config.json is not supported; "
            "known: True."
        )
    named = dict(_SPECIAL)
    for name, token in described.named.items():
        named[name] = token if isinstance(token, str) else token.content
    backend = Backend(models.WordPiece(_read(directory / VOCABULARY), unk_token=named["unk_token"]))
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=fields.tokenize_chinese_chars is not False,
        strip_accents=fields.strip_accents,
        lowercase=fields.do_lower_case is not False,
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    add_tokens(backend, described, directory)
    held = [named[name] for name in _SPECIAL if backend.token_to_id(named[name]) is not None]
    backend.add_tokens([marked(token, special=True) for token in held])
    _add_ends(backend, named, directory)
    return backend, named


def _add_ends(backend: Backend, named: dict[str, str], directory: Path) -> None:
    """Has [CLS] put before a text, and [SEP] behind it. Raises WeightsError."""
    for name in _NEEDED:
        if backend.token_to_id(named[name]) is None:
            raise WeightsError(
                f"{directory / VOCABULARY} has no {name} {named[name]!r}: it is no vocabulary of "
                "BERT's, or tokenizer_config.json names another token. "
                "Give a tokenizer=, or skip_tokenizer_init=True to work with token ids."
            )
    cls, sep = named["cls_token"], named["sep_token"]
    backend.post_processor = processors.TemplateProcessing(
        single=[cls, "$A", sep],
        pair=[cls, "$A", sep, "$B:1", f"{sep}:1"],
        special_tokens=[(token, backend.token_to_id(token)) for token in (cls, sep)],
    )


def _read(file: Path) -> dict[str, int]:
    """Each line's token, and the number of the last line that has it. Raises WeightsError."""
    try:
        size = file.stat().st_size
        if not 0 < size <= MAX_BYTES:
            raise ValueError(f"it has {size} bytes, between 1 and {MAX_BYTES} are read")
        # Tokens may hold other ends of lines, such as U+2028, at which splitlines would cut.
        lines = file.read_text("utf-8-sig").removesuffix("\n").split("\n")
    except (OSError, ValueError) as error:
        instead = describe_broken_file(file) or ""
        raise WeightsError(f"{file} is no vocabulary: {error}. {instead}".rstrip()) from error
    return {token: number for number, token in enumerate(lines)}
