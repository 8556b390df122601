"""The fewest tokens that a length allows are never more than the tokens that there are."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE, WordLevel

from jax_engine.tokenization.least_tokens import FORMS_SHRINK, LeastTokens
from jax_engine.tokenization.token_bytes import BYTE_ALPHABET

NORMALIZERS: dict[str, list[Any]] = {
    "none": [],
    "NFC": [normalizers.NFC()],
    "NFKC": [normalizers.NFKC()],
    "NFD": [normalizers.NFD()],
    "two forms": [normalizers.NFKC(), normalizers.Replace("b", "é"), normalizers.NFC()],
    "visible spaces": [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")],
    "NFKD, visible spaces": [normalizers.NFKD(), normalizers.Replace(" ", "\u2581")],
    "shrinks": [normalizers.Replace("aaa", "b")],
    "lowercase": [normalizers.Lowercase()],
    "strips": [normalizers.Strip()],
    "accents": [normalizers.NFD(), normalizers.StripAccents()],
}
SPLITTERS: dict[str, list[Any]] = {
    "none": [],
    "digits": [pre_tokenizers.Digits(individual_digits=True)],
    "words": [pre_tokenizers.Split(" ", "merged_with_next")],
    "removes": [pre_tokenizers.Split(" ", "removed")],
    "metaspace": [pre_tokenizers.Metaspace()],
    "words without spaces": [pre_tokenizers.WhitespaceSplit()],
}
KEEPING = {"none", "NFC", "NFKC", "NFD", "two forms", "visible spaces", "NFKD, visible spaces"}
ADDED = {
    "none": None,
    "plain": AddedToken("<|long special token|>", special=True, normalized=False),
    "greedy": AddedToken("<x>", lstrip=True, rstrip=True, normalized=False),
    "greedy, normalized": AddedToken("<x>", lstrip=True, normalized=True),
}
LETTERS = "aab  é\u0301\u030a\u212b\u212aK\U0001d400\u1112\u1161\u11ab漢\U0001f600\x00\x04\u25811"
texts = st.lists(st.sampled_from([*LETTERS, "   ", "aaaa", "<x>", "<|long special token|>"])).map(
    "".join
)


def backend(
    level: str, normalizer: str = "none", splitter: str = "none", added: str = "none",
    without: str = "", merges: int = 4,
) -> Backend:  # fmt: skip
    """A small BPE tokenizer.

    Args:
        level: "byte-level", "byte-fallback" or "unknown" (neither: other letters are unknown).
        without: letters of the alphabet of bytes that the vocabulary lacks.
        merges: how many times "a", and a space, are doubled.
    """
    space = "Ġ" if level == "byte-level" else "\u2581"
    if level == "byte-level":
        names = [one for one in BYTE_ALPHABET if one not in without]
    elif level == "byte-fallback":
        names = [f"<0x{byte:02X}>" for byte in range(256)] + ["a", "b", " ", space]
    else:
        names = ["a", "b", " ", space, "<unk>"]
    pairs = [(letter * 2**i, letter * 2**i) for letter in ("a", space) for i in range(merges)]
    names += [left + right for left, right in pairs]
    options = {"byte-fallback": {"byte_fallback": True}, "byte-level": {}}.get(
        level, {"unk_token": "<unk>", "fuse_unk": True}
    )
    vocabulary = {name: i for i, name in enumerate(dict.fromkeys(names))}
    found = Backend(BPE(vocab=vocabulary, merges=pairs, **options))
    found.normalizer = normalizers.Sequence(NORMALIZERS[normalizer])
    splits = [*SPLITTERS[splitter]]
    if level == "byte-level":
        splits.append(pre_tokenizers.ByteLevel(add_prefix_space=False))
    found.pre_tokenizer = pre_tokenizers.Sequence(splits)
    if ADDED[added] is not None:
        found.add_tokens([ADDED[added]])
    return found


@settings(max_examples=300)
@given(
    level=st.sampled_from(["byte-level", "byte-fallback", "unknown"]),
    normalizer=st.sampled_from([*NORMALIZERS]),
    splitter=st.sampled_from([*SPLITTERS]),
    added=st.sampled_from([*ADDED]),
    without=st.sampled_from(["", "b", "K", "\u0104", "Ã", "Ã\u0104"]),
    text=texts,
)
@example(
    level="byte-level", normalizer="NFC", splitter="none", added="greedy", without="", text="  <x> "
)
@example(
    level="byte-level", normalizer="NFKC", splitter="none", added="none", without="",
    text="\U0001d400\u030a" * 40,
)  # fmt: skip
@example(
    level="byte-level", normalizer="NFC", splitter="none", added="none", without="K",
    text="\u212a" * 40,
)  # fmt: skip
@example(
    level="byte-level", normalizer="NFKC", splitter="none", added="none", without="",
    text="\U0001d6d6\u0308\u0301" * 40,
)  # fmt: skip
@example(
    level="byte-fallback", normalizer="visible spaces", splitter="none", added="none", without="",
    text="\u2581" * 80,
)  # fmt: skip
def test_there_are_never_fewer_tokens(
    level: str, normalizer: str, splitter: str, added: str, without: str, text: str
) -> None:
    made = backend(level, normalizer, splitter, added, without)
    least = LeastTokens.of(made).of_text(text)
    assert least <= len(made.encode(text, add_special_tokens=False).ids)
    if level == "unknown" or normalizer not in KEEPING or "without" in splitter:
        assert not least


@pytest.mark.parametrize(
    ("made", "text", "least"),
    [
        (backend("byte-level"), "a" * 160, 10),
        (backend("byte-level"), " " * 161, 11),
        (backend("byte-level"), "é" * 80, 10),
        (backend("byte-level", splitter="words"), "a" * 160, 10),
        (backend("byte-level", added="plain"), "a" * 220, 10),  # the longest is the special one
        (backend("byte-level", added="greedy"), "a" * 160, 10),
        (backend("byte-level", added="greedy"), " " * 160 + "<x>", 0),
        (backend("byte-level", added="greedy, normalized", normalizer="NFC"), "a" * 160, 0),
        (backend("byte-level", without="b"), "a" * 160 + "b" * 160, 10),
        (backend("byte-level", normalizer="NFC"), "a" * 160, 10),
        (backend("byte-level", normalizer="NFC"), "a" * 160 + "é", 10),
        (backend("byte-level", normalizer="NFC"), "é" * 16 * FORMS_SHRINK, 2),
        (backend("byte-level", normalizer="NFC", without="Ã"), "é" * 160, 0),
        # In the form, these are nothing but letters that the vocabulary lacks.
        (backend("byte-level", normalizer="NFC", without="K"), "\u212a" * 160, 0),
        (backend("byte-level", normalizer="NFC", without="Ã"), "e\u0301" * 160, 0),
        (backend("byte-level", normalizer="NFKC"), "\U0001d400" * 160, 10),
        (backend("byte-level", normalizer="two forms"), "\U0001d400" * 160, 3),
        (backend("byte-fallback", normalizer="visible spaces"), "a" * 480, 10),
        (backend("byte-fallback", splitter="removes"), " " * 480, 0),
        (backend("byte-fallback", splitter="metaspace"), "a" * 480, 10),
        (backend("unknown"), "漢" * 1000, 0),
        (Backend(WordLevel({"a": 0, "?": 1}, unk_token="?")), "b" * 1000, 0),
    ],
)
def test_how_many_at_least(made: Backend, text: str, least: int) -> None:
    assert LeastTokens.of(made).of_text(text) == least


def test_texts_that_are_cut_have_any_length() -> None:
    made = backend("byte-level")
    made.enable_truncation(5)
    assert LeastTokens.of(made).of_text("a" * 1000) == 0


@pytest.mark.parametrize(("form", "shrink"), [("NFD", 3.0), ("NFKD", 4.0)])
def test_decomposed_characters_shrink_no_more_than_said(form: str, shrink: float) -> None:
    """The library that tokenises decomposes them, whatever Unicode it knows."""
    write = getattr(normalizers, form)().normalize_str
    assert max(_size(one) / _size(write(one)) for one in _characters()) == shrink <= FORMS_SHRINK


@pytest.mark.slow
@pytest.mark.parametrize(("form", "shrink"), [("NFC", 3.5), ("NFKC", 4.0)])
def test_composed_characters_shrink_no_more_than_said(form: str, shrink: float) -> None:
    """However the pieces of characters come together: each piece has a share of the bytes of what
    it may come from, so that a text has no more bytes than the shares of its pieces."""
    decompose = getattr(normalizers, form.replace("C", "D"))().normalize_str
    compose = getattr(normalizers, form)().normalize_str
    shares: dict[str, float] = {}
    for one in _characters():
        pieces = decompose(one)
        for piece in pieces:
            shares[piece] = max(shares.get(piece, 0.0), _size(one) / len(pieces))
    most = max(
        sum(shares[piece] for piece in decompose(one)) / _size(one)
        for one in _characters()
        if compose(one) == one
    )
    assert most == shrink <= FORMS_SHRINK


@pytest.mark.parametrize(
    ("form", "text", "size"),
    [("NFC", "\u1fbe\u0308\u0301", 2), ("NFKC", "\U0001d6d6\u0308\u0301", 2)],
)
def test_some_texts_shrink_as_much(form: str, text: str, size: int) -> None:
    shrink = {"NFC": 3.5, "NFKC": 4.0}[form]
    assert _size(text) / _size(getattr(normalizers, form)().normalize_str(text)) == shrink
    assert _size(getattr(normalizers, form)().normalize_str(text)) == size


def _characters() -> Iterator[str]:
    return (chr(one) for one in (*range(0xD800), *range(0xE000, 0x110000)))


def _size(text: str) -> int:
    return len(text.encode())
