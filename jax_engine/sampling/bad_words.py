"""`bad_words`: texts that the output must never complete, as sequences of tokens."""

from collections.abc import Callable, Iterable, Sequence


def bad_word_tokens(words: Iterable[str], encode: Callable[[str], list[int]]) -> list[list[int]]:
    """Token sequences of each word as it is and, if that is another first token, after a space.

    Both are needed where a tokenizer has one token for a word that begins a text and another for
    the same word in the middle. vLLM's rule: the second only if it has as many tokens.

    Args:
        encode: Text to ids, without special tokens.
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
