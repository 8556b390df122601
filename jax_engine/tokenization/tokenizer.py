"""Text to token ids and back, from a directory's files or from the fields of a GGUF file."""

import codecs
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from tokenizers import Tokenizer as Backend

from jax_engine.config.engine_config import TokenizerMode
from jax_engine.errors import WeightsError
from jax_engine.models.checkpoints.file_schema import (
    checked,
    describe_broken_file,
    read_json,
    read_text,
)
from jax_engine.models.checkpoints.gguf import open_gguf
from jax_engine.models.checkpoints.resolve import HUB, HubOptions, resolve_model
from jax_engine.tokenization.chat_content import Message
from jax_engine.tokenization.chat_template import DEFAULT, ChatTemplate
from jax_engine.tokenization.gguf_tokenizer import backend_from_gguf, fields_from_gguf
from jax_engine.tokenization.mistral_templates import instruct_template
from jax_engine.tokenization.mistral_tokenizers import read_mistral
from jax_engine.tokenization.old_tokenizers import backend_without_json, has_old_tokenizer, unpadded
from jax_engine.tokenization.token_bytes import TokenBytes, token_bytes
from jax_engine.tokenization.tokenizer_fields import (
    Described,
    NamedTemplate,
    TokenizerConfigFields,
    add_tokens,
    described_tokens,
)

if TYPE_CHECKING:
    from jax_engine.models.checkpoints.gguf.gguf_file import GgufFile

_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token")


class Tokenizer:
    """A model's tokenizer.

    Attributes:
        backend: the `tokenizers` object that does the encoding.
        special_ids: ids of tokens that are not text (end of text, turns of a chat).
        bos_token_id: beginning of sequence, or None.
        eos_token_ids: end of sequence, possibly none.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        special_tokens: dict[str, str] | None = None,
        chat_template: str | Mapping[str, str] | None = None,
    ):
        """
        Args:
            special_tokens: tokens by name (bos_token, eos_token, ...).
            chat_template: one in Jinja, or several by name.
        """
        self.backend = backend
        named = special_tokens or {}
        added = backend.get_added_tokens_decoder()
        self.special_ids = frozenset(index for index, token in added.items() if token.special)
        self.bos_token_id: int | None = backend.token_to_id(named.get("bos_token", ""))
        eos = backend.token_to_id(named.get("eos_token", ""))
        self.eos_token_ids: tuple[int, ...] = () if eos is None else (eos,)
        if isinstance(chat_template, str):
            chat_template = {DEFAULT: chat_template}
        self.chat = ChatTemplate(backend, chat_template or {}, named)

    @property
    def vocab_size(self) -> int:
        """Number of tokens, added ones included; a model's logits may be padded to more."""
        return int(self.backend.get_vocab_size(with_added_tokens=True))

    @property
    def eos_token_id(self) -> int | None:
        return self.eos_token_ids[0] if self.eos_token_ids else None

    @cached_property
    def token_bytes(self) -> TokenBytes | None:
        """The bytes of each token, if the tokenizer works on bytes; else None."""
        return token_bytes(self.backend)

    @cached_property
    def around(self) -> tuple[int, int]:
        """How many special tokens `encode` adds in front of a text, and behind it."""
        mask = self.backend.encode("a").special_tokens_mask
        text = [at for at, is_special in enumerate(mask) if not is_special] or [len(mask)]
        return text[0], max(0, len(mask) - 1 - text[-1])

    @property
    def hugging_face(self) -> Any:
        """The same tokenizer as a `transformers.PreTrainedTokenizerFast` (about 1 s to import)."""
        return self.chat.renderer

    def is_special(self, token_id: int) -> bool:
        return token_id in self.special_ids

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Ids of `text`, in which special tokens are recognised.

        Args:
            add_special_tokens: add the model's tokens around a text, usually BOS before it.
        """
        ids: list[int] = self.backend.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def encode_unlocked(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The same ids as `encode`, for other threads: they go on meanwhile.

        It costs a short text more, and starts threads, of which a process that forks is warned.
        """
        (encoding,) = self.backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        ids: list[int] = encoding.ids
        return ids

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of the ids. Invalid UTF-8 becomes U+FFFD; unknown ids are left out."""
        table = self.token_bytes
        if table is None:
            text: str = self.backend.decode(
                list(token_ids), skip_special_tokens=skip_special_tokens
            )
            return text
        hidden = self.special_ids if skip_special_tokens else frozenset()
        data = b"".join([table[token] for token in token_ids if token not in hidden])
        text = data.decode("utf-8", "replace")
        return text.removeprefix(" ") if table.strips_first_space else text

    @overload
    def apply_chat_template(
        self, messages: Sequence[Message], *, tokenize: Literal[True] = ..., **options: Any
    ) -> list[int]: ...

    @overload
    def apply_chat_template(
        self, messages: Sequence[Message], *, tokenize: Literal[False], **options: Any
    ) -> str: ...

    def apply_chat_template(
        self, messages: Sequence[Message], *, tokenize: bool = True, **options: Any
    ) -> str | list[int]:
        """A conversation as ids, or as text. The template writes BOS itself: none is added.

        Args:
            messages: dictionaries with role and content.
            options: as in `ChatTemplate.render`.

        Raises:
            ConfigError: the model has no chat template and none was given.
            InvalidRequestError: messages or options are invalid, or the template refuses them.
        """
        text = self.chat.render(messages, **options)
        return self.encode(text, add_special_tokens=False) if tokenize else text


def load_tokenizer(
    source: "str | Path | GgufFile | None" = None,
    hub: HubOptions = HUB,
    mode: TokenizerMode = "auto",
) -> Tokenizer:
    """The tokenizer of a directory, a GGUF file, a hub name, or (None) the default model.

    Args:
        hub: options for files that are not on this machine.
        source: A `GgufFile` that is open already is not read again.
        mode: which files of a directory are read: `EngineConfig.tokenizer_mode`.

    Raises:
        ModelNotFoundError: there is no such model, or no tokenizer in it.
        ConfigError: a GGUF file with an unsupported kind of tokenizer, or `mode` asks for files
            that are not there.
        WeightsError: the files are unreadable.
        MissingPackageError: a GGUF file (the default model is one) without the `gguf` package.
    """
    if not (source is None or isinstance(source, str | Path)):
        return _from_gguf(source)
    path = Path(source).expanduser() if source is not None else None
    if path is None or not os.path.isdir(path) or not _has_tokenizer(path):
        path = resolve_model(None if source is None else str(source), config_only=True, hub=hub)
    return _from_gguf(open_gguf(path)) if path.is_file() else _from_directory(path, mode)


def _has_tokenizer(directory: Path) -> bool:
    return any(directory.glob("tokenizer*")) or has_old_tokenizer(directory)


def _from_gguf(file: "GgufFile") -> Tokenizer:
    fields = fields_from_gguf(file.metadata, str(file.path))
    ids = (fields.bos, fields.eos, fields.unknown, fields.padding)
    return Tokenizer(
        backend_from_gguf(file.metadata, str(file.path)),
        special_tokens={
            name: fields.tokens[index]
            for name, index in zip(_NAMED, ids, strict=True)
            if index is not None
        },
        chat_template=_gguf_templates(file, fields.chat_template),
    )


def _gguf_templates(file: "GgufFile", default: str | None) -> dict[str, str]:
    """The templates of a GGUF file by name: a key of its metadata for each. Raises WeightsError."""
    start, found = "tokenizer.chat_template.", {} if default is None else {DEFAULT: default}
    raw = {key: value for key, value in file.metadata.items() if key.startswith(start)}
    named = checked(raw, dict[str, str], str(file.path), WeightsError)
    return found | {key.removeprefix(start): value for key, value in named.items()}


def templates_of(directory: Path) -> dict[str, str]:
    """The chat templates of a directory by name, possibly none. Raises WeightsError."""
    return _templates(directory, tokenizer_config(directory)[1])


def tokenizer_config(directory: Path) -> tuple[dict[str, Any], TokenizerConfigFields]:
    """All of tokenizer_config.json, which may be absent, and its known fields.

    Raises:
        WeightsError: it is damaged.
    """
    file = directory / "tokenizer_config.json"
    raw = read_json(file) if os.path.lexists(file) else {}
    return raw, checked(raw, TokenizerConfigFields, str(file), WeightsError)


def _from_directory(directory: Path, mode: TokenizerMode) -> Tokenizer:
    raw, fields = tokenizer_config(directory)
    if mode in ("auto", "mistral"):
        found = read_mistral(directory, fields, wanted=mode == "mistral")
        if found is not None:
            own = instruct_template(found.version)
            templates = _templates(directory, fields) or ({} if own is None else {DEFAULT: own})
            return Tokenizer(found.backend, special_tokens=found.named, chat_template=templates)
    described = described_tokens(directory, fields, raw)
    backend, named = _backend(directory, fields, described)
    for name, token in described.named.items():
        named[name] = token if isinstance(token, str) else token.content
    return Tokenizer(backend, special_tokens=named, chat_template=_templates(directory, fields))


def _backend(
    directory: Path, fields: TokenizerConfigFields, described: Described
) -> tuple[Backend, dict[str, str]]:
    """The tokenizer, and the special tokens that its files name."""
    file = directory / "tokenizer.json"
    if not os.path.lexists(file):  # a link to nothing is a broken tokenizer
        return backend_without_json(directory, fields, described)
    try:
        backend = unpadded(Backend.from_buffer(file.read_bytes().removeprefix(codecs.BOM_UTF8)))
        add_tokens(backend, described, directory)
    except Exception as error:  # the library raises bare Exceptions
        instead = describe_broken_file(file) or ""
        raise WeightsError(f"{file} is not a tokenizer: {error}. {instead}".rstrip()) from error
    return backend, {}


def _templates(directory: Path, fields: TokenizerConfigFields) -> dict[str, str]:
    """The templates by name: chat_template.jinja replaces all of tokenizer_config.json."""
    file, template = directory / "chat_template.jinja", fields.chat_template
    if file.exists():
        template = read_text(file)
    if isinstance(template, str):
        template = [NamedTemplate(DEFAULT, template)]
    named = sorted((directory / "additional_chat_templates").glob("[!.]*.jinja"))
    found = {entry.name: entry.template for entry in template or ()}
    return found | {one.stem: read_text(one) for one in named}
