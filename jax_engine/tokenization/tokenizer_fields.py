"""The fields of a tokenizer's files that are read, and the tokens that these files add.

The schemas give each field its type and range. The files beside tokenizer.json add tokens to it, or
describe them once more. tokenizer_config.json lists them in `added_tokens_decoder`; older
directories have added_tokens.json and special_tokens_map.json instead. As in transformers, a token
that tokenizer.json lacks gets the id that its vocabulary has for it, or else the next free one.
"""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from jax_engine.errors import WeightsError
from jax_engine.models.checkpoints.file_schema import TokenId, checked, read_json, short


class TokenContent(msgspec.Struct, frozen=True):
    """A token with its options, which are those of the `tokenizers` package.

    Attributes:
        normalized: whether it is looked for in normalised text; None: unless it is special.
    """

    content: str
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool | None = None


class NamedTemplate(msgspec.Struct, frozen=True):
    """One of several chat templates."""

    name: str
    template: str


VocabularyToken = Annotated[
    str, Meta(max_length=1024)
]  # finding merges takes quadratic time in its length
SpecialToken = str | TokenContent | None
ExtraTokens = list[str | TokenContent] | dict[str, str] | None


class SpecialTokensFields(msgspec.Struct, frozen=True):
    """special_tokens_map.json, an old file."""

    bos_token: SpecialToken = None
    eos_token: SpecialToken = None
    unk_token: SpecialToken = None
    sep_token: SpecialToken = None
    pad_token: SpecialToken = None
    cls_token: SpecialToken = None
    mask_token: SpecialToken = None
    additional_special_tokens: ExtraTokens = None
    extra_special_tokens: ExtraTokens = None  # its name in transformers 5


Id = Annotated[str, Meta(pattern="^[0-9]{1,9}$")]  # JSON's keys are text


class AddedTokenFields(TokenContent, frozen=True):
    """A token beside the vocabulary."""

    special: bool = False


class TokenizerConfigFields(SpecialTokensFields, frozen=True):
    """tokenizer_config.json. What is added is read for tokenizers without a tokenizer.json."""

    chat_template: str | list[NamedTemplate] | None = None
    add_bos_token: bool | None = None
    add_eos_token: bool | None = None
    added_tokens_decoder: dict[Id, AddedTokenFields] | None = None
    tokenizer_class: str | None = None
    do_lower_case: bool | None = None
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool | None = None
    do_basic_tokenize: bool | None = None


_GGUF_KEYS = {
    "tokens": "tokenizer.ggml.tokens",
    "scores": "tokenizer.ggml.scores",
    "token_types": "tokenizer.ggml.token_type",
    "merges": "tokenizer.ggml.merges",
    "pre": "tokenizer.ggml.pre",
    "add_space_prefix": "tokenizer.ggml.add_space_prefix",
    "add_bos": "tokenizer.ggml.add_bos_token",
    "add_eos": "tokenizer.ggml.add_eos_token",
    "bos": "tokenizer.ggml.bos_token_id",
    "eos": "tokenizer.ggml.eos_token_id",
    "unknown": "tokenizer.ggml.unknown_token_id",
    "padding": "tokenizer.ggml.padding_token_id",
    "chat_template": "tokenizer.chat_template",
}


class GgufTokenizerFields(msgspec.Struct, frozen=True, rename=_GGUF_KEYS):
    """Tokenizer metadata of a GGUF file. Lists have one item per token, except `merges`."""

    tokens: Annotated[list[VocabularyToken], Meta(min_length=1)]
    scores: list[float] | None = None
    token_types: list[int] | None = None
    merges: list[str] | None = None
    pre: str | None = None
    add_space_prefix: bool = True
    add_bos: bool | None = None
    add_eos: bool | None = None
    bos: TokenId | None = None
    eos: TokenId | None = None
    unknown: TokenId | None = None
    padding: TokenId | None = None
    chat_template: str | None = None

    def check_lengths(self, where: str) -> None:
        """Raises WeightsError if a list or an id does not fit the number of tokens."""
        count = len(self.tokens)
        for name in ("scores", "token_types"):
            found = getattr(self, name)
            if found is not None and len(found) != count:
                raise WeightsError(
                    f"{where}: {_GGUF_KEYS[name]} must have an item for each of the {count} "
                    f"tokens, got {len(found)}."
                )
        for name in ("bos", "eos", "unknown", "padding"):
            token = getattr(self, name)
            if token is not None and token >= count:
                raise WeightsError(
                    f"{where}: {_GGUF_KEYS[name]} must be below the number of tokens, {count}, "
                    f"got {short(token)}."
                )


logger = logging.getLogger(__name__)


NAMES = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
_EXTRA = {"extra_special_tokens", "additional_special_tokens"}  # one thing, in old and new files
Token = str | TokenContent


@dataclasses.dataclass(frozen=True)
class Described:
    """What the files beside tokenizer.json say of tokens.

    Attributes:
        named: special tokens by name (bos_token, eos_token, ...).
        extra: special tokens without a name.
        added: tokens by their ids in the files.
        is_whole: whether those of tokenizer.json are among them.
    """

    named: Mapping[str, Token]
    extra: Sequence[Token]
    added: Mapping[int, AddedToken]
    is_whole: bool


def described_tokens(
    directory: Path, config: TokenizerConfigFields, raw: Mapping[str, Any]
) -> Described:
    """Reads the files of a directory. Raises WeightsError.

    Args:
        config: tokenizer_config.json, whose `added_tokens_decoder` replaces older files.
        raw: All of its fields: a model may have special tokens of its own there.
    """
    file = directory / "special_tokens_map.json"
    raw_older = _read(file)
    older = checked(raw_older, SpecialTokensFields, str(file), WeightsError)
    if config.added_tokens_decoder is not None:
        named = _named(config, older) | _own(raw)
        added = {int(index): one for index, one in config.added_tokens_decoder.items()}
        tokens = {index: marked(one, special=one.special) for index, one in added.items()}
        return Described(named, _extra(config, named), tokens, is_whole=True)
    named = _named(older, config) | _own(raw_older) | _own(raw)
    extra, more = _extra(config, named), _extra(older, named)
    if older.extra_special_tokens:
        extra, more = [*extra, *more], []
    special = {_content(named[name]) for name in NAMES if name in named} | set(map(_content, extra))
    listed = added_tokens_file(directory)
    tokens = {index: marked(one, special=one in special) for one, index in listed.items()}
    if not _EXTRA & raw.keys():
        extra = [*extra, *more]
    return Described(named, extra, tokens, is_whole=False)


def add_tokens(backend: Backend, described: Described, where: object) -> None:
    """Adds tokens to a backend, special ones as such, with what they strip around them.

    Logs tokens whose id is not that of the files.
    """
    own = {} if described.is_whole else backend.get_added_tokens_decoder()
    added = {**described.added, **own}
    names = set(map(_content, described.named.values()))
    found = [added[index] for index in sorted(added)]
    for token in found:
        token.special = token.special or token.content in names
    known = {one.content for one in (*backend.get_added_tokens_decoder().values(), *found)}
    for special in (*described.named.values(), *described.extra):
        if _content(special) not in known:
            known.add(_content(special))
            found.append(marked(special, special=True))
    backend.add_tokens(found)
    for index, token in sorted(added.items()):
        given = backend.token_to_id(token.content)
        if given != index:
            logger.warning(
                "%s: the added token %r has the id %s, where the files say %d",
                *(where, token.content, given, index),
            )


def marked(token: Token, *, special: bool) -> AddedToken:
    """A token as the library takes it. Special ones are found before a text is normalised."""
    if isinstance(token, str):
        return AddedToken(token, special=special, normalized=not special)
    return AddedToken(
        token.content,
        single_word=token.single_word,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        normalized=not special if token.normalized is None else token.normalized,
        special=special,
    )


def added_tokens_file(directory: Path) -> dict[str, int]:
    """Ids by token of added_tokens.json, which may be absent. Raises WeightsError."""
    file = directory / "added_tokens.json"
    return checked(_read(file), dict[str, int], str(file), WeightsError)


def _named(first: SpecialTokensFields, second: SpecialTokensFields) -> dict[str, Token]:
    """Special tokens by the names that all models have; the first file's word counts."""
    given = {name: getattr(first, name) or getattr(second, name) for name in NAMES}
    return {name: token for name, token in given.items() if token}


def _own(raw: Mapping[str, Any]) -> dict[str, Token]:
    """A model's own special tokens by name, such as `image_token`."""
    return {
        name: value
        for name, value in raw.items()
        if name.endswith("_token") and name not in NAMES and isinstance(value, str)
    }


def _extra(fields: SpecialTokensFields, named: dict[str, Token]) -> Sequence[Token]:
    """Special tokens without a name; those in a dictionary go to the named ones."""
    found = fields.extra_special_tokens or fields.additional_special_tokens or ()
    if isinstance(found, dict):
        named.update(found)
        return ()
    return found


def _read(file: Path) -> dict[str, Any]:
    return read_json(file) if file.exists() else {}


def _content(token: Token) -> str:
    return token if isinstance(token, str) else token.content
