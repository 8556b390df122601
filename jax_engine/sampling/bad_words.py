"""`bad_words`: token sequences that the output must never complete."""

from collections.abc import Callable, Iterable, Sequence


def bad_word_tokens(words: Iterable[str], encode: Callable[[str], list[int]]) -> list[list[int]]:
    """Encodes each word plain and, if the first token then differs, also after a space.

    Many tokenizers have one token for a word at the start of a text and another for the same word
    after a space. As in vLLM, the second form counts only if it has as many tokens as the first.

    Args:
        encode: Converts text to ids, without special tokens.
    """
    sequences = []
    for word in words:
        plain, spaced = encode(word), encode(" " + word.lstrip())
        sequences.append(plain)
        if len(spaced) == len(plain) and spaced[:1] != plain[:1]:
            sequences.append(spaced)
    return [sequence for sequence in sequences if sequence]


def completing_tokens(sequences: Iterable[Sequence[int]], output: Sequence[int]) -> list[int]:
    """The tokens that would complete one of the sequences after this output."""
    return [
        sequence[-1]
        for sequence in sequences
        if len(output) >= len(sequence) - 1 and list(sequence[:-1]) == _last(output, sequence)
    ]


def _last(output: Sequence[int], sequence: Sequence[int]) -> list[int]:
    return list(output[len(output) - len(sequence) + 1 :])
