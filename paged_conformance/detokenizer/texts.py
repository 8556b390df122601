"""Tiny vocabularies and outputs, and what the oracle says of them."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from hypothesis import strategies as st

from paged_conformance.drawing import Numbers, record
from paged_conformance.properties import Capabilities
from reference.text import Vocabulary, byte_fallback, byte_level, certain, find_stop, utf8

# Parts of characters of two, three and four bytes, whole characters, words, and bad bytes.
_PARTS: tuple[bytes, ...] = (
    b"a", b"b", b"ab", b" a", b" ", b"ba", b"\xc3", b"\xa9", b"\xe2\x82", b"\xac", b"\xe2", b"\x82",
    b"\xf0\x9f", b"\x98\x80", b"\xf0", b"\x9f\x98", b"\x80", "é".encode(), "€".encode(), b"abab",
    b"\n", b"\xff", b"\xed\xa0", "\ufffd".encode(), b"a\xc3", b"\xa9b", b"b a", b"<", b">",
)  # fmt: skip
_SPECIAL = ("<|end|>", "<|mark|>")
_STOPS = ("a", "ab", "ba", "b a", "é", "a€", "aba", " ", "bb", "😀", "é b", "abab", "\n", "<|end|>")
_LONGEST = (4, 8, 8, 24)  # tokens; few are long, since the oracle decodes all with each token


@cache
def pieces(kind: str) -> tuple[str, ...]:
    """The vocabulary of a kind, as it is written; special tokens are the last two."""
    if kind == "byte-level":
        letters = {byte_level(chr(one)): chr(one) for one in range(0x21, 0x144)}
        written = ["".join(letters[bytes([byte])] for byte in part) for part in _PARTS]
        return (*written, *_SPECIAL)
    words = [part.decode().replace(" ", "\u2581") for part in _PARTS if _is_text(part)]
    alone = [f"<0x{byte:02X}>" for byte in b"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xffa"]
    return (*words, *alone, *_SPECIAL)


def _is_text(part: bytes) -> bool:
    try:
        return part.decode() != "\ufffd"
    except UnicodeDecodeError:
        return False


@cache
def read_vocabulary(kind: str, written: tuple[str, ...], special: frozenset[int]) -> Vocabulary:
    """The bytes of each piece; special tokens stand for their names."""
    read = byte_level if kind == "byte-level" else byte_fallback
    known = [one.encode() if i in special else read(one) for i, one in enumerate(written)]
    return Vocabulary(known, special)


def special_of(kind: str) -> frozenset[int]:
    size = len(pieces(kind))
    return frozenset({size - 2, size - 1})


def examples(has: Capabilities) -> st.SearchStrategy[Any]:
    """An output, cut into steps, with its stops."""
    kinds = [one for one in ("byte-level", "byte-fallback") if one.replace("-", "_") in has]
    if not kinds:
        return st.nothing()
    size = min(len(pieces(one)) for one in kinds)

    def spell(first: bytes, cuts: bytes, tokens: bytes) -> dict[str, Any]:
        drawn = Numbers(first)
        example = {
            "kind": drawn.among(kinds),
            "include_stop": drawn.yes(),
            "min_tokens": drawn.below(5),
            "skip_special_tokens": drawn.yes(),
            "ends": drawn.yes() and "stop_tokens" in has,
            "stop": [_STOPS[one] for one in drawn.several(len(_STOPS), 3)],
            "prompt": drawn.several(3, 3, least=1),  # whole characters
            "cuts": [1 + cut for cut in Numbers(cuts).several(4, 8)] if "several" in has else [],
            "tokens": Numbers(tokens).several(size, drawn.among(_LONGEST), least=1),
        }
        return example if "unicode" in has else _without_bad_bytes(example)

    return st.builds(spell, record(14), record(9), record(25))


def _without_bad_bytes(example: dict[str, Any]) -> dict[str, Any]:
    """Leaves out each token whose bytes go on with no character."""
    kind = example["kind"]
    known = read_vocabulary(kind, pieces(kind), special_of(kind))
    tokens, data = [], b""
    for token in example["tokens"]:
        more = data + known.bytes_of(token, example["skip_special_tokens"])
        text, _ = utf8(more)
        if "\ufffd" not in text:
            tokens.append(token)
            data = more
    return {**example, "tokens": tokens or [0]}


def steps(example: dict[str, Any]) -> list[list[int]]:
    """The tokens of each call: one at a time behind the cuts."""
    rest, cut = list(example["tokens"]), []
    for length in example["cuts"]:
        if rest:
            cut.append(rest[:length])
            rest = rest[length:]
    return [*cut, *([token] for token in rest)]


class Expected:
    """What the oracle says of an output.

    Attributes:
        texts: What is certain after 0, 1, .. tokens; the last one with what is held back.
        held: Whether the end is an unfinished character.
    """

    def __init__(self, example: dict[str, Any]) -> None:
        self._example = example
        tokens = example["tokens"]
        if example["ends"] and not example["include_stop"]:
            tokens = tokens[:-1]
        how: dict[str, Any] = {
            "skip_special_tokens": example["skip_special_tokens"], "behind_prompt": True,
        }  # fmt: skip
        kind = example["kind"]
        known = read_vocabulary(kind, pieces(kind), special_of(kind))
        self.texts = certain(known, tokens, **how)
        if len(tokens) < len(example["tokens"]):
            self.texts.append(self.texts[-1])
        self.whole = certain(known, tokens, over=True, **how)[-1]

    def stopped(self, num_before: int, num_after: int) -> dict[str, str]:
        """For each stop string that a call completes: the text of the output that it ends."""
        least = max(num_before, self._example["min_tokens"])
        before, after = self.texts[min(least, num_after)], self.texts[num_after]
        found: dict[str, str] = {}
        for stop in self._example["stop"]:
            start = after.find(stop, max(0, len(before) - len(stop) + 1))
            if num_after > least and start >= 0:
                end = start + len(stop) if self._example["include_stop"] else start
                found.setdefault(stop, after[:end])
        return found

    def first(self) -> str | None:
        """The stop string that counts."""
        found = find_stop(self.texts, self._example["stop"], self._example["min_tokens"])
        return found.string if found else None


def joined(texts: Sequence[str], exact: bool) -> str:
    """The pieces as one text; a run of U+FFFD counts as one unless the number is known."""
    text = "".join(texts)
    while not exact and "\ufffd\ufffd" in text:
        text = text.replace("\ufffd\ufffd", "\ufffd")
    return text
