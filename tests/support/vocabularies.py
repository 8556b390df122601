"""Random vocabularies of bytes: as tokenizers, and in the oracle's hands."""

from dataclasses import dataclass
from random import Random

from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, pre_tokenizers
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE

from jax_engine.tokenization.tokenizer import Tokenizer
from reference.text import Vocabulary
from tests.support.byte_tokenizer import EOS_TOKEN, byte_alphabet

# Pieces of characters of two, three and four bytes, bytes of none, words that overlap, spaces.
PIECES = [
    b"a", b"b", b"ab", b"ba", b"aba", b" a", b"b ", b" ", b"\n", b"\xc3", b"\xa9", b"\xc3\xa9",
    b"\xe2", b"\x82", b"\xac", b"\xe2\x82", b"\xac\xe2", b"\xf0\x9f", b"\x99\x82", b"\xed\xa0",
    b"\xff", b"a\xc3", b"\xa9b", b"z\xe2\x82\xac", b"\xc2\xad", b"\xef\xbf\xbd",
]  # fmt: skip
BYTES = [bytes([byte]) for byte in range(256)]


@dataclass(frozen=True)
class Words:
    """One vocabulary, twice: token i is piece i, and the special token has a place of its own."""

    tokenizer: Tokenizer
    oracle: Vocabulary


def byte_words(pieces: list[bytes], special: int) -> Words:
    """A byte-level vocabulary, as GPT-2's and SmolLM2's; `pieces[special]` is the end."""
    names = ["".join(byte_alphabet()[byte] for byte in piece) for piece in pieces]
    vocab = {name: token for token, name in enumerate(names) if token != special}
    backend = Backend(BPE(vocab=vocab | {EOS_TOKEN: special}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    data = [*pieces[:special], EOS_TOKEN.encode(), *pieces[special + 1 :]]
    return _words(backend, Vocabulary(data, frozenset({special})))


def fallback_words(pieces: list[bytes], special: int, *, strips: bool) -> Words:
    """A vocabulary with byte fallback, as Llama 2's: bytes, and pieces that are text."""
    names = [_fallback_name(piece) for piece in pieces]
    vocab = {name: token for token, name in enumerate(names) if token != special}
    backend = Backend(BPE(vocab=vocab | {EOS_TOKEN: special}, merges=[], byte_fallback=True))
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence(steps + [decoders.Strip(" ", 1, 0)] * strips)
    data = [*pieces[:special], EOS_TOKEN.encode(), *pieces[special + 1 :]]
    return _words(backend, Vocabulary(data, frozenset({special}), strips))


@st.composite
def words(draw: st.DrawFn, size: int, special: int) -> Words:
    """A vocabulary of `size` pieces of either kind, whatever text they make together."""
    kind = draw(st.sampled_from(["byte-level", "byte-fallback", "strips"]))
    rng = Random(draw(st.integers(0, 2**16)))
    telling = PIECES
    if kind != "byte-level":  # a piece is text, or one byte
        telling = [piece for piece in PIECES if len(piece) == 1 or _is_text(piece)]
    pieces = rng.sample(telling, min(len(telling), size * 3 // 4))
    pieces += rng.sample([byte for byte in BYTES if byte not in pieces], size - len(pieces))
    rng.shuffle(pieces)
    if kind == "byte-level":
        return byte_words(pieces, special)
    return fallback_words(pieces, special, strips=kind == "strips")


def _words(backend: Backend, oracle: Vocabulary) -> Words:
    backend.add_special_tokens([AddedToken(EOS_TOKEN, special=True, normalized=False)])
    return Words(Tokenizer(backend, special_tokens={"eos_token": EOS_TOKEN}), oracle)


def _fallback_name(piece: bytes) -> str:
    if _is_text(piece):
        return piece.decode().replace(" ", "\u2581")
    (byte,) = piece
    return f"<0x{byte:02X}>"


def _is_text(piece: bytes) -> bool:
    return "\ufffd" not in piece.decode("utf-8", "replace")
