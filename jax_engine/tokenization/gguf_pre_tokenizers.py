"""How byte-level tokenizers of GGUF files split text before merging: `tokenizer.ggml.pre`.

Each vocabulary was trained with its own splits. The patterns are those of the original tokenizers;
llama.cpp has rewritten some of them for its own regular expressions.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, Digits, Punctuation, Sequence, Split

_SUFFIXES = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = rf"{_SUFFIXES}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BEFORE = r"[^\r\n\p{L}\p{N}]?"
_REST_WITH_SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def _cased(suffixes: str, digits: str) -> str:
    """Words are cut where capitals follow small letters."""
    first = rf"{_BEFORE}{_UPPER}*{_LOWER}+{suffixes}"
    second = rf"{_BEFORE}{_UPPER}+{_LOWER}*{suffixes}"
    return rf"{first}|{second}|{digits}|{_REST_WITH_SLASH}"


def _pattern(pattern: str) -> Any:
    """Split by a pattern, then bytes."""
    cut = Split(Regex(pattern), behavior="isolated")
    return Sequence([cut, ByteLevel(add_prefix_space=False, use_regex=False)])


def _gpt2() -> Any:
    return ByteLevel(add_prefix_space=False, use_regex=True)


def _single_digits() -> Any:
    return Sequence([Digits(individual_digits=True), _gpt2()])


def _falcon() -> Any:
    """Numbers are cut into threes."""
    threes = Split(Regex("[0-9][0-9][0-9]"), behavior="isolated")
    numbers = Digits(individual_digits=False)
    return Sequence([Punctuation(behavior="contiguous"), _gpt2(), numbers, threes])


class PreTokenizer(NamedTuple):
    """A way of splitting.

    Attributes:
        make: makes the object of the `tokenizers` package.
        ignore_merges: whether a piece that is a token is not merged from its parts.
        adds_bos: whether BOS is added unless the file says otherwise.
        composes: whether text is put into Unicode's composed form (NFC).
    """

    make: Callable[[], Any]
    ignore_merges: bool = False
    adds_bos: bool = False
    composes: bool = False


_LLAMA3 = PreTokenizer(
    lambda: _pattern(rf"{_WORDS}|\p{{N}}{{1,3}}|{_REST}"), ignore_merges=True, adds_bos=True
)
_QWEN2 = PreTokenizer(lambda: _pattern(rf"{_WORDS}|\p{{N}}|{_REST}"), composes=True)
_TEKKEN = PreTokenizer(lambda: _pattern(_cased("", r"\p{N}")), ignore_merges=True, adds_bos=True)
PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    **dict.fromkeys(("default", "gpt-2", "gpt2", "phi-2", "mpt", "jais"), PreTokenizer(_gpt2)),
    "olmo": PreTokenizer(_gpt2, composes=True),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"), _LLAMA3),
    **dict.fromkeys(("dbrx", "smaug-bpe"), _LLAMA3._replace(ignore_merges=False, adds_bos=False)),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), _QWEN2),
    "stablelm2": _QWEN2._replace(composes=False),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"),
        PreTokenizer(_single_digits),
    ),
    "falcon": PreTokenizer(_falcon),
    "gpt-4o": PreTokenizer(lambda: _pattern(_cased(f"{_SUFFIXES}?", r"\p{N}{1,3}"))),
    "tekken": _TEKKEN,
}
