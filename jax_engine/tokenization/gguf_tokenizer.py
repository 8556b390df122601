"""A tokenizer from the metadata of a GGUF file, which has no tokenizer.json."""

from collections.abc import Mapping
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    decoders,
    normalizers,
    pre_tokenizers,
    processors,
)
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE

from jax_engine.errors import ConfigError

_SPACE = "\u2581"
_CONTROL, _USER_DEFINED = 3, 4  # token types of the file
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_WORDS}|\p{{N}}{{1,3}}|{_REST}"
_QWEN2 = rf"{_WORDS}|\p{{N}}|{_REST}"
_PRE_TOKENIZERS = ("smollm", "llama-bpe", "gpt2", "gpt-2", "default", "qwen2")


def backend_from_gguf(metadata: Mapping[str, Any]) -> Backend:
    """Byte-level BPE ("gpt2") or SentencePiece-like BPE with byte fallback ("llama").

    Raises:
        ConfigError: another kind of tokenizer, an unknown pre-tokenizer, or missing fields.
    """
    kind = metadata.get("tokenizer.ggml.model")
    if kind not in ("gpt2", "llama"):
        raise ConfigError(f"GGUF tokenizer {kind!r} is not supported; known: gpt2, llama.")
    if "tokenizer.ggml.tokens" not in metadata:
        raise ConfigError("The GGUF file has no tokenizer.ggml.tokens: give a tokenizer=.")
    backend = _byte_level(metadata) if kind == "gpt2" else _sentencepiece(metadata)
    _add_marked_tokens(backend, metadata)
    _add_bos(backend, metadata, kind)
    return backend


def _byte_level(metadata: Mapping[str, Any]) -> Backend:
    pre = metadata.get("tokenizer.ggml.pre", "default")
    if pre not in _PRE_TOKENIZERS:
        known = ", ".join(_PRE_TOKENIZERS)
        raise ConfigError(
            f"GGUF pre-tokenizer {pre!r} is not supported; known: {known}. Give the directory of "
            "the original model as tokenizer=."
        )
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    backend = Backend(
        BPE(vocab=_vocabulary(metadata), merges=merges, ignore_merges=pre == "llama-bpe")
    )
    backend.pre_tokenizer = _pre_tokenizer(pre)
    backend.decoder = decoders.ByteLevel()
    if pre == "qwen2":
        backend.normalizer = normalizers.NFC()
    return backend


def _pre_tokenizer(pre: str) -> Any:
    """How text is cut before merging: each vocabulary was learned on its own cuts."""
    if pre in ("llama-bpe", "qwen2"):
        pattern = Regex(_LLAMA3 if pre == "llama-bpe" else _QWEN2)
        cut = pre_tokenizers.Split(pattern, behavior="isolated")
        return pre_tokenizers.Sequence(
            [cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if pre == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    return byte_level


def _sentencepiece(metadata: Mapping[str, Any]) -> Backend:
    tokens = metadata["tokenizer.ggml.tokens"]
    unknown = tokens[metadata.get("tokenizer.ggml.unknown_token_id", 0)]
    vocabulary = _vocabulary(metadata)
    backend = Backend(
        BPE(
            vocab=vocabulary,
            merges=_merges_of(vocabulary, metadata["tokenizer.ggml.scores"]),
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    prefix = metadata.get("tokenizer.ggml.add_space_prefix", True)
    visible = normalizers.Replace(" ", _SPACE)
    prepend = [normalizers.Prepend(_SPACE)] if prefix else []
    backend.normalizer = normalizers.Sequence([*prepend, visible])
    strip = [decoders.Strip(content=" ", left=1, right=0)] if prefix else []
    backend.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return backend


def _vocabulary(metadata: Mapping[str, Any]) -> dict[str, int]:
    return {token: index for index, token in enumerate(metadata["tokenizer.ggml.tokens"])}


def _merges_of(vocabulary: Mapping[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """SentencePiece joins the pair whose result scores best: every split of a token is a merge."""
    merges = []
    for token, index in vocabulary.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in vocabulary and right in vocabulary:
                order = (-scores[index], vocabulary[left], vocabulary[right])
                merges.append((order, (left, right)))
    return [pair for _, pair in sorted(merges)]


def _add_marked_tokens(backend: Backend, metadata: Mapping[str, Any]) -> None:
    """Control tokens are special; user-defined ones are found whole in text, but are not."""
    types = metadata.get("tokenizer.ggml.token_type", [])
    marked = list(zip(metadata["tokenizer.ggml.tokens"], types, strict=False))
    backend.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token, t in marked if t == _CONTROL]
    )
    user = [AddedToken(token, normalized=False) for token, t in marked if t == _USER_DEFINED]
    if user:
        backend.add_tokens(user)


def _add_bos(backend: Backend, metadata: Mapping[str, Any], kind: str) -> None:
    pre = metadata.get("tokenizer.ggml.pre")
    adds = metadata.get("tokenizer.ggml.add_bos_token", kind == "llama" or pre == "llama-bpe")
    bos = metadata.get("tokenizer.ggml.bos_token_id")
    if adds and bos is not None:
        token = metadata["tokenizer.ggml.tokens"][bos]
        backend.post_processor = processors.TemplateProcessing(
            single=[token, "$A"], pair=[token, "$A", "$B"], special_tokens=[(token, bos)]
        )
