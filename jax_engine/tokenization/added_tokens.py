"""The tokens that files beside tokenizer.json add to it, or describe once more.

tokenizer_config.json lists them in `added_tokens_decoder`; older directories have added_tokens.json
and special_tokens_map.json instead. As in transformers, a token that tokenizer.json lacks gets the
id that its vocabulary has for it, or else the next free one.
"""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from jax_engine.errors import WeightsError
from jax_engine.file_schema import checked, read_json
from jax_engine.tokenization.schemas import (
    SpecialTokensFields,
    TokenContent,
    TokenizerConfigFields,
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
