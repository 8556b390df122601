"""From tokens to text, and where a stop string ends it.

A token of today's vocabularies stands for a string of *bytes*, and text is those bytes, end to end,
read as UTF-8. A character has up to four bytes, so a token may end in the middle of one. Three
rules say what a client sees, and when:

1. Text is *certain* when no further token can change it. Bytes at the end that begin a character
   are held back until the rest arrives. Bytes that no character has become U+FFFD, one for each
   longest run that might have begun a character (Unicode, 3.9); so does what is still held back
   when there are no more tokens.
2. A *stop string* ends an output with the character that completes it. Of several that one
   character completes, the longest counts. The first `min_tokens` tokens complete none, but one
   may begin among them. The text ends before the stop string, or behind it if it is to be included.
3. What may become a stop string is held back until it has, or cannot any more.

Special tokens (end of sequence, marks of a chat) stand for nothing, unless they are to be shown.
And some vocabularies (SentencePiece's, Llama 2) begin each word with a space: it is dropped from a
text that begins with it, and kept where the text goes on behind a prompt.

>>> words = Vocabulary([b" He", b"l", b"lo", b" \\xe2\\x82", b"\\xac", b"</s>"], frozenset({5}))
>>> certain(words, [0, 1, 2, 3, 4, 5])              # after no token, after one, ...
['', ' He', ' Hel', ' Hello', ' Hello ', ' Hello €', ' Hello €']
>>> decode(words, [3, 2, 3]), decode(words, [5, 4], skip_special_tokens=False)
(' \\ufffdlo \\ufffd', '</s>\\ufffd')
>>> texts = certain(words, [0, 1, 2, 3, 4])
>>> find_stop(texts, ["lo ", "o"])
Stop(string='o', start=5, num_tokens=3)
>>> find_stop(texts, ["lo ", "o"], min_tokens=3)
Stop(string='lo ', start=4, num_tokens=4)
>>> [shown(text, ["llo", "o €!"]) for text in texts]
['', ' He', ' He', ' Hell', ' Hell', ' Hell']
"""

from collections.abc import Sequence
from dataclasses import dataclass

REPLACEMENT = "\ufffd"
_ANY = range(0x80, 0xC0)
# The bytes that a character may have, first to last (Unicode, table 3-7).
_FORMS: list[list[range]] = [
    [range(0x00, 0x80)],
    [range(0xC2, 0xE0), _ANY],
    [range(0xE0, 0xE1), range(0xA0, 0xC0), _ANY],
    [range(0xE1, 0xED), _ANY, _ANY],
    [range(0xED, 0xEE), range(0x80, 0xA0), _ANY],
    [range(0xEE, 0xF0), _ANY, _ANY],
    [range(0xF0, 0xF1), range(0x90, 0xC0), _ANY, _ANY],
    [range(0xF1, 0xF4), _ANY, _ANY, _ANY],
    [range(0xF4, 0xF5), range(0x80, 0x90), _ANY, _ANY],
]


@dataclass(frozen=True)
class Vocabulary:
    """The bytes of token i are `token_bytes[i]`; ids beyond them stand for nothing."""

    token_bytes: Sequence[bytes]
    special_token_ids: frozenset[int] = frozenset()
    strips_first_space: bool = False

    def bytes_of(self, token_id: int, skip_special_tokens: bool) -> bytes:
        if token_id >= len(self.token_bytes):
            return b""
        if skip_special_tokens and token_id in self.special_token_ids:
            return b""
        return self.token_bytes[token_id]


def byte_level(piece: str) -> bytes:
    """The bytes of a piece of GPT-2's vocabularies, which writes each byte as one character.

    A byte that is a visible character of Latin-1 is that character; the others, in their order, are
    the characters from U+0100 on. A piece with any other character was added to the vocabulary as
    it is.

    >>> byte_level("Ġw"), byte_level("âĤ¬").decode(), byte_level("<end of text>")
    (b' w', '€', b'<end of text>')
    """
    visible = [byte for byte in range(256) if chr(byte).isprintable() and byte != ord(" ")]
    others = [byte for byte in range(256) if byte not in visible]
    written = [chr(byte) for byte in visible] + [chr(256 + i) for i in range(len(others))]
    byte_of = dict(zip(written, visible + others, strict=True))
    if any(character not in byte_of for character in piece):
        return piece.encode()
    return bytes(byte_of[character] for character in piece)


def byte_fallback(piece: str) -> bytes:
    """The bytes of a piece of SentencePiece's vocabularies: text with visible spaces, or one byte.

    >>> byte_fallback("\\u2581to"), byte_fallback("<0xE2>"), byte_fallback("<0xE>")
    (b' to', b'\\xe2', b'<0xE>')
    """
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return bytes.fromhex(piece[3:5])
    return piece.replace("\u2581", " ").encode()


def utf8(data: bytes) -> tuple[str, bytes]:
    """The characters of some bytes, and those at the end that may be the beginning of one.

    >>> utf8(b"a\\xc3\\xa9\\xe2\\x82"), utf8(b"\\xe2\\x82b"), utf8(b"\\xed\\xa0")
    (('aé', b'\\xe2\\x82'), ('\ufffdb', b''), ('\ufffd\ufffd', b''))
    """
    text, at = "", 0
    while at < len(data):
        form = max(_FORMS, key=lambda one: _num_fitting(data[at:], one))
        fitting = _num_fitting(data[at:], form)
        if fitting == len(form):
            text += data[at : at + fitting].decode()
        elif fitting and at + fitting == len(data):
            return text, data[at:]
        else:
            text += REPLACEMENT
        at += max(fitting, 1)
    return text, b""


def _num_fitting(data: bytes, form: Sequence[range]) -> int:
    """How many bytes at the beginning are as the form says."""
    fits = [byte in allowed for byte, allowed in zip(data, form, strict=False)]
    return [*fits, False].index(False)


def decode(
    vocabulary: Vocabulary,
    token_ids: Sequence[int],
    *,
    skip_special_tokens: bool = True,
    behind_prompt: bool = False,
) -> str:
    """The text of tokens after which there are no more."""
    return certain(
        vocabulary,
        token_ids,
        skip_special_tokens=skip_special_tokens,
        behind_prompt=behind_prompt,
        over=True,
    )[-1]


def certain(
    vocabulary: Vocabulary,
    token_ids: Sequence[int],
    *,
    skip_special_tokens: bool = True,
    behind_prompt: bool = False,
    over: bool = False,
) -> list[str]:
    """Rule 1: what is certain after 0, 1, ... tokens; after the last one all, if it is `over`."""
    texts, data = [""], b""
    for number, token_id in enumerate(token_ids, 1):
        data += vocabulary.bytes_of(token_id, skip_special_tokens)
        text, held = utf8(data)
        if over and number == len(token_ids) and held:
            text += REPLACEMENT
        if vocabulary.strips_first_space and not behind_prompt:
            text = text.removeprefix(" ")
        texts.append(text)
    return texts


@dataclass(frozen=True)
class Stop:
    """A stop string in a text: where it starts, and how many tokens there are when it is seen."""

    string: str
    start: int
    num_tokens: int


def find_stop(texts: Sequence[str], stops: Sequence[str], min_tokens: int = 0) -> Stop | None:
    """Rule 2, where `texts` are certain after 0, 1, ... tokens; None if nothing stops them."""
    for num_tokens in range(min_tokens + 1, len(texts)):
        for end in range(len(texts[num_tokens - 1]) + 1, len(texts[num_tokens]) + 1):
            complete = [one for one in stops if texts[num_tokens][:end].endswith(one)]
            if complete:
                longest = max(complete, key=len)
                return Stop(longest, end - len(longest), num_tokens)
    return None


def shown(text: str, stops: Sequence[str]) -> str:
    """Rule 3: what may be shown of a text that goes on."""
    beginnings = [one[:length] for one in stops for length in range(1, len(one))]
    held = max((len(one) for one in beginnings if text.endswith(one)), default=0)
    return text[: len(text) - held]
