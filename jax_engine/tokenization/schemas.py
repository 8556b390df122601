"""The fields of a tokenizer's files that are read, with their types and ranges."""

from typing import Annotated

import msgspec
from msgspec import Meta

from jax_engine.errors import WeightsError
from jax_engine.file_schema import TokenId, short


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


Token = Annotated[str, Meta(max_length=1024)]  # finding merges takes quadratic time in its length
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

    tokens: Annotated[list[Token], Meta(min_length=1)]
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
