"""A tokenizer from the metadata of a GGUF file, which has no tokenizer.json."""

from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import AddedToken, decoders, normalizers, processors
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE

from jax_engine.errors import ConfigError, JaxEngineError, WeightsError
from jax_engine.models.checkpoints.file_schema import checked, short
from jax_engine.models.checkpoints.gguf import ends_by_text
from jax_engine.tokenization.gguf_pre_tokenizers import PRE_TOKENIZERS, PreTokenizer
from jax_engine.tokenization.tokenizer_fields import GgufTokenizerFields

_SPACE = "\u2581"
_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4  # token types of the file


def fields_from_gguf(metadata: Mapping[str, Any], where: str) -> GgufTokenizerFields:
    """The checked fields. Raises the errors of `backend_from_gguf`."""
    kind = metadata.get("tokenizer.ggml.model")
    if kind not in ("gpt2", "llama"):
        raise ConfigError(
            f"{where}: tokenizer.ggml.model {short(kind)} is not supported; known: gpt2, llama."
        )
    if "tokenizer.ggml.tokens" not in metadata:
        raise ConfigError(f"{where} has no tokenizer.ggml.tokens: give a tokenizer=.")
    fields = checked(metadata, GgufTokenizerFields, where, WeightsError)
    fields.check_lengths(where)
    return fields


def backend_from_gguf(metadata: Mapping[str, Any], where: str = "The GGUF file") -> Backend:
    """Byte-level BPE ("gpt2") or SentencePiece-like BPE with byte fallback ("llama").

    Args:
        where: The file's name in messages.

    Raises:
        ConfigError: Another kind of tokenizer, an unknown pre-tokenizer, or no tokens.
        WeightsError: A field is of the wrong type or length, missing, or damaged.
    """
    fields = fields_from_gguf(metadata, where)
    return backend_from_fields(fields, metadata["tokenizer.ggml.model"], where)


def backend_from_fields(fields: GgufTokenizerFields, kind: str, where: str) -> Backend:
    """The same from checked fields: kind "gpt2" or "llama"."""
    make = _byte_level if kind == "gpt2" else _sentencepiece
    try:
        backend = make(fields, where)
        _add_marked_tokens(backend, fields)
        _add_ends(backend, fields, kind)
    except JaxEngineError:
        raise
    except Exception as error:  # tokenizers raises bare Exceptions
        raise WeightsError(f"{where}: its fields make no tokenizer: {error}.") from error
    return backend


def _byte_level(fields: GgufTokenizerFields, where: str) -> Backend:
    splits = _splits(fields.pre)
    backend = Backend(
        BPE(
            vocab=_vocabulary(fields.tokens),
            merges=_merges(fields, where),
            ignore_merges=splits.ignore_merges,
        )
    )
    backend.pre_tokenizer = splits.make()
    backend.decoder = decoders.ByteLevel()
    if splits.composes:
        backend.normalizer = normalizers.NFC()
    return backend


def _splits(pre: str | None) -> PreTokenizer:
    """How text is split before merging. Raises ConfigError that lists the known ways."""
    found = PRE_TOKENIZERS.get(pre or "default")
    if found is None:
        known = ", ".join(PRE_TOKENIZERS)
        raise ConfigError(
            f"GGUF pre-tokenizer {short(pre)} is not supported; known: {known}. Give the directory "
            "of the original model as tokenizer=."
        )
    return found


def _merges(fields: GgufTokenizerFields, where: str) -> list[tuple[str, str]]:
    if fields.merges is None:
        raise WeightsError(f"{where}: tokenizer.ggml.merges is missing.")
    merges = []
    for index, merge in enumerate(fields.merges):
        left, _, right = merge.partition(" ")
        if not (left and right) or " " in right:
            raise WeightsError(
                f"{where}: tokenizer.ggml.merges[{index}] must be two parts with a space between, "
                f"got {short(merge)}."
            )
        merges.append((left, right))
    return merges


def _sentencepiece(fields: GgufTokenizerFields, where: str) -> Backend:
    if fields.scores is None:
        raise WeightsError(f"{where}: tokenizer.ggml.scores is missing.")
    unknown = fields.tokens[fields.unknown or 0]
    vocabulary = _vocabulary(fields.tokens)
    backend = Backend(
        BPE(
            vocab=vocabulary,
            merges=merges_by_score(vocabulary, fields.scores),
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    prefix = fields.add_space_prefix
    visible = normalizers.Replace(" ", _SPACE)
    prepend = [normalizers.Prepend(_SPACE)] if prefix else []
    backend.normalizer = normalizers.Sequence([*prepend, visible])
    strip = [decoders.Strip(content=" ", left=1, right=0)] if prefix else []
    backend.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return backend


def _vocabulary(tokens: list[str]) -> dict[str, int]:
    return {token: index for index, token in enumerate(tokens)}


def merges_by_score(
    vocabulary: Mapping[str, int], scores: Sequence[float]
) -> list[tuple[str, str]]:
    """Every split of a token is a merge: SentencePiece joins the pair whose result scores best."""
    merges = []
    for token, index in vocabulary.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in vocabulary and right in vocabulary:
                order = (-scores[index], vocabulary[left], vocabulary[right])
                merges.append((order, (left, right)))
    return [pair for _, pair in sorted(merges)]


def _add_marked_tokens(backend: Backend, fields: GgufTokenizerFields) -> None:
    """Adds control tokens as special tokens, and user-defined tokens as ordinary added ones.

    What ends a turn is a control token, whatever its type says: it is never shown.
    """
    types = fields.token_types or [_NORMAL] * len(fields.tokens)
    control = {i for i, kind in enumerate(types) if kind == _CONTROL} | {
        *ends_by_text(fields.tokens)
    }
    backend.add_special_tokens([fields.tokens[i] for i in control])
    user = [
        AddedToken(token, normalized=False)
        for i, (token, kind) in enumerate(zip(fields.tokens, types, strict=True))
        if kind == _USER_DEFINED and i not in control
    ]
    backend.add_tokens(user)


def _add_ends(backend: Backend, fields: GgufTokenizerFields, kind: str) -> None:
    """Has the tokenizer put BOS before a text and EOS behind it, where the file says so."""
    adds = fields.add_bos
    if adds is None:
        adds = kind == "llama" or _splits(fields.pre).adds_bos
    before = [fields.bos] if adds and fields.bos is not None else []
    behind = [fields.eos] if fields.add_eos and fields.eos is not None else []
    if before or behind:
        first, last = ([fields.tokens[index] for index in ids] for ids in (before, behind))
        backend.post_processor = processors.TemplateProcessing(
            single=[*first, "$A", *last],
            pair=[*first, "$A", "$B", *last],
            special_tokens=[(fields.tokens[index], index) for index in {*before, *behind}],
        )
