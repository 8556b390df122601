"""The fewest tokens that a text can have, known from its length alone.

Where a tokenizer keeps every byte of a text, a token stands for no more bytes than the longest
token of the vocabulary has. Many tokenizers keep less: a normalizer may drop letters, a splitter
spaces, an unknown word may be one token, however long. Of those nothing is said (0 tokens), and the
same holds for every part that this module does not know.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer as Backend

from jax_engine.tokenization.token_bytes import BYTE_ALPHABET

_SPACE = "\u2581"  # SentencePiece's visible space
# Normal forms drop nothing, but may make a text shorter: four bytes of a letter in bold become one
# of ASCII, and eight of an upsilon with two accents two. Never more than this many times: give each
# piece of a character that decomposes an equal share of its bytes, and no composed character has
# more than 4 times its own bytes of such shares. (A test adds them up for all of Unicode.)
_FORMS = frozenset({"NFC", "NFD", "NFKC", "NFKD"})
FORMS_SHRINK = 4
_NEVER = frozenset({0xC0, 0xC1, *range(0xF5, 0x100)})  # bytes that no text has in UTF-8
_KEEPING = frozenset({"ByteLevel", "Digits", "UnicodeScripts", "FixedLength"})


@dataclass(frozen=True)
class LeastTokens:
    """Counts the fewest tokens of texts.

    Attributes:
        longest: Bytes of text that one token stands for, at most; 0: nothing is known.
        dropped: Bytes that the vocabulary lacks: they become no token.
        shrink: How many times shorter a text may get before it is split.
        greedy: Contents of tokens that swallow all spaces beside them.
    """

    longest: int
    dropped: bytes = b""
    shrink: int = 1
    greedy: tuple[str, ...] = ()

    @classmethod
    def of(cls, backend: Backend) -> "LeastTokens":
        """For a tokenizer."""
        normalizers = _parts(backend.normalizer, "normalizers")
        splitters = _parts(backend.pre_tokenizer, "pretokenizers")
        added = list(backend.get_added_tokens_decoder().values())
        greedy = [one for one in added if one.lstrip or one.rstrip]
        kinds = {one["type"] for one in (*normalizers, *splitters)}
        dropped = _dropped(backend, byte_level="ByteLevel" in kinds)
        known = all(map(_normalizer_keeps, normalizers)) and all(map(_keeps, splitters))
        written_anew = bool(normalizers) and any(one.normalized for one in greedy)
        if dropped is None or not known or backend.truncation or written_anew:
            return cls(0)
        vocabulary = backend.get_vocab(with_added_tokens=False)
        contents = [str(one.content) for one in added]
        longest = max(
            _longest(vocabulary, byte_level="ByteLevel" in kinds),
            *(len(one.encode("utf-8", "surrogatepass")) for one in ("x", *contents)),
        )
        shrink = FORMS_SHRINK ** sum(one["type"] in _FORMS for one in normalizers)
        return cls(longest, dropped, shrink, tuple(str(one.content) for one in greedy))

    def of_text(self, text: str) -> int:
        """The fewest tokens of a text; special tokens around it are not counted.

        Takes a few milliseconds for a megabyte, so it is asked of long texts only.
        """
        if not self.longest or any(one in text for one in self.greedy):
            return 0
        data = text.encode("utf-8", "surrogatepass")
        size = len(data.translate(None, self.dropped))
        if self.shrink > 1 and not text.isascii():
            if any(one >= 0x80 for one in self.dropped):
                return 0  # any letter may become one of these
            # An ASCII letter stays, or becomes a part of a longer one.
            ascii_only = len(text.encode("ascii", "ignore").translate(None, self.dropped))
            size = max(ascii_only, 0 if self.dropped else size // self.shrink)
        return -(-size // self.longest)


def _parts(part: Any, inside: str) -> list[dict[str, Any]]:
    """A normalizer or splitter, or those in a sequence, as JSON."""
    if part is None:
        return []
    state = json.loads(part.__getstate__())
    return [
        found for one in state.get(inside, [state])
        for found in (one[inside] if one["type"] == "Sequence" else [one])
    ]  # fmt: skip


def _normalizer_keeps(step: dict[str, Any]) -> bool:
    """Whether no text gets shorter, but by a normal form."""
    if step["type"] == "Replace":
        old = step["pattern"].get("String")
        return bool(old) and len(step["content"].encode()) >= len(old.encode())
    return step["type"] in (*_FORMS, "Prepend", "ByteLevel")


def _keeps(step: dict[str, Any]) -> bool:
    """Whether the pieces of a splitter hold the whole text."""
    if step["type"] in ("Split", "Punctuation"):
        return bool(step["behavior"] != "Removed")
    if step["type"] == "Metaspace":
        return bool(step["replacement"] == _SPACE)
    return step["type"] in _KEEPING


def _dropped(backend: Backend, *, byte_level: bool) -> bytes | None:
    """The bytes of UTF-8 that become no token; None: it is not known which.

    Every other byte that is no part of a longer token has a token of its own.
    """
    model = backend.model
    if type(model).__name__ != "BPE" or model.continuing_subword_prefix:
        return None
    if byte_level:
        names = BYTE_ALPHABET
    elif model.byte_fallback:
        names = {f"<0x{byte:02X}>": byte for byte in range(256)}
    else:
        return None
    absent = {byte for name, byte in names.items() if model.token_to_id(name) is None} - _NEVER
    if absent and (model.unk_token is not None or not byte_level):
        return None  # they become an unknown token, however many there are
    return bytes(sorted(absent))


def _longest(vocabulary: Iterable[str], *, byte_level: bool) -> int:
    if byte_level:  # a character is a byte
        return max(map(len, vocabulary), default=1)
    return max((len(one.encode("utf-8", "surrogatepass")) for one in vocabulary), default=1)
