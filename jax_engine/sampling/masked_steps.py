"""What the host decides of a masked step: token masks, bad words, and logits processors.

A mask has one bit a token, 32 to a word, in the form that the host sends to the sampler.
`bad_words` are token sequences that the output must never complete. `logits_processors` are the
user's own functions of the logits.
"""

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

ALL_TOKENS = np.uint32(0xFFFFFFFF)  # one word of a mask that allows all tokens


def num_words(vocab_size: int) -> int:
    """Number of uint32 words that hold one bit a token."""
    return -(-vocab_size // 32)


def token_bits(token_ids: Iterable[int], vocab_size: int) -> np.ndarray:
    """uint32 [words] with these tokens' bits set: token t is bit t % 32 of word t // 32."""
    bits = np.zeros(num_words(vocab_size), np.uint32)
    ids = np.fromiter(token_ids, np.int64)
    np.bitwise_or.at(bits, ids // 32, np.uint32(1) << (ids % 32).astype(np.uint32))
    return bits


def as_booleans(bits: np.ndarray, vocab_size: int) -> np.ndarray:
    """Converts one row of bits to bool [V]."""
    # Little-endian bytes, whatever the machine's own byte order.
    octets = np.unpackbits(bits.astype("<u4").view(np.uint8), bitorder="little")
    return octets[:vocab_size].astype(bool)


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


# (prompt token ids, output token ids, logits [V]) -> logits [V]
Processor = Callable[[list[int], list[int], np.ndarray], Any]


def with_prompt(function: Callable[..., Any]) -> Processor:
    """Wraps both forms of processor as one that takes the prompt too.

    A function with exactly three positional parameters without defaults receives the prompt's
    tokens; any other function does not.
    """
    if _num_positional(function) == 3:
        return function
    return lambda prompt, output, logits: function(output, logits)


def _num_positional(function: Callable[..., Any]) -> int:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some functions of extension modules have no signature
        return 2
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(one.kind in kinds and one.default is one.empty for one in parameters)


def run_processors(
    processors: Sequence[Processor], prompt: list[int], output: list[int], logits: np.ndarray
) -> np.ndarray:
    """The edited logits, float32 [V]; `logits` itself is not changed.

    Raises:
        ValueError: A processor did not return V numbers below infinity.
        Exception: Whatever a processor raises.
    """
    edited = np.array(logits)
    for processor in processors:
        edited = np.array(processor(list(prompt), list(output), edited), np.float32)
        if edited.shape != logits.shape or not (edited < np.inf).all():
            raise ValueError(
                f"a logits processor must return {len(logits)} numbers, -inf at the least and "
                f"none of them NaN or infinity, got shape {edited.shape}"
            )
    return edited
