"""Tokenizers of the package `tokenizers` for the vocabularies of the detokenizer's suite."""

from typing import Any


def backend(kind: str, pieces: list[str], special: list[int]) -> Any:
    """A `tokenizers.Tokenizer` that decodes these pieces."""
    from tokenizers import AddedToken, Tokenizer, decoders
    from tokenizers.models import BPE

    vocab = {piece: number for number, piece in enumerate(pieces)}
    made = Tokenizer(BPE(vocab=vocab, merges=[], byte_fallback=kind == "byte-fallback"))
    if kind == "byte-level":
        made.decoder = decoders.ByteLevel()
    else:
        replace = decoders.Replace("\u2581", " ")
        made.decoder = decoders.Sequence([replace, decoders.ByteFallback(), decoders.Fuse()])
    made.add_special_tokens(
        [AddedToken(pieces[one], special=True, normalized=False) for one in special]
    )
    return made
