"""The bytes of each token, for tokenizers that work on bytes.

In a byte-level vocabulary (GPT-2, Llama 3, Qwen, SmolLM), and in a SentencePiece one with byte
fallback (Llama 2, Mistral), every token is a string of bytes. Text is their concatenation, decoded
as UTF-8: one table look-up per token, and the whole text and the streamed text are equal by
construction.
"""

import json
import re
from typing import Literal

from tokenizers import Tokenizer as Backend

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE = "\u2581"  # SentencePiece's visible space


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's characters for the 256 bytes: printable ones are themselves, others from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(256 + index): byte for index, byte in enumerate(others)}


BYTE_ALPHABET = _byte_alphabet()


class TokenBytes(dict[int, bytes]):
    """Bytes by token id, computed at the first look-up; b"" for ids that the vocabulary lacks.

    Attributes:
        strips_first_space: whether decoding a whole text drops its first space.
    """

    def __init__(self, backend: Backend, kind: Literal["byte-level", "byte-fallback"]):
        super().__init__()
        self._backend = backend
        self._byte_level = kind == "byte-level"
        self.strips_first_space = False

    def __missing__(self, token_id: int) -> bytes:
        token = self._backend.id_to_token(token_id)
        data = b"" if token is None else self._bytes_of(token)
        self[token_id] = data
        return data

    def _bytes_of(self, token: str) -> bytes:
        if self._byte_level:
            try:
                return bytes(BYTE_ALPHABET[char] for char in token)
            except KeyError:  # an added token, written as it is
                return token.encode()
        byte = _BYTE_TOKEN.fullmatch(token)
        return bytes([int(byte[1], 16)]) if byte else token.replace(_SPACE, " ").encode()


def token_bytes(backend: Backend) -> TokenBytes | None:
    """The table of a tokenizer whose decoder concatenates bytes; None for other decoders."""
    if backend.decoder is None:
        return None
    decoder = json.loads(backend.decoder.__getstate__())
    steps = decoder.get("decoders", [decoder])
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        return TokenBytes(backend, "byte-level")
    replaces = {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "}
    if kinds[:3] != ["Replace", "ByteFallback", "Fuse"] or steps[0] != replaces:
        return None
    table = TokenBytes(backend, "byte-fallback")
    if len(steps) == 3:
        return table
    table.strips_first_space = True
    strips = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    return table if steps[3:] == [strips] else None
