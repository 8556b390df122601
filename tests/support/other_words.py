"""A draft model with other tokens than the tiny Llama: letters and pairs of them, and who recites.

The tiny Llama's tokens are letters (`save_letter_tokenizer`). The draft's are the same letters,
numbered the other way round, and pairs of them. So all that the two have in common is text.
"""

import functools
from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np
from tokenizers import AddedToken, decoders, pre_tokenizers
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE

from jax_engine.engine.startup.open_draft import DraftParts
from jax_engine.step import Capabilities
from jax_engine.tokenization.tokenizer import Tokenizer
from tests.support.builders import letters
from tests.support.byte_tokenizer import letter
from tests.support.reading_model import ReadingModel, hidden_after
from tests.support.stub_runner import StubRunner
from tests.support.tiny_llama import EOS, VOCAB

_LETTERS = [letter(token) for token in range(VOCAB) if token != EOS]


class Reciting(ReadingModel):
    """Knows by its cache what follows each beginning of some token sequences; else the last token.

    Args:
        known: What is there, and what follows.
    """

    def __init__(self, known: Iterable[tuple[list[int], list[int]]], vocab_size: int) -> None:
        super().__init__()
        self._vocab_size = vocab_size
        self._next: dict[float, int] = {}
        for before, behind in known:
            tokens = [*before, *behind]
            for n in range(len(before), len(tokens)):
                self._next.setdefault(hidden_after(tokens[:n]), tokens[n])

    def compute_logits(self, hidden: np.ndarray) -> np.ndarray:
        logits = np.zeros((len(hidden), self._vocab_size))
        for row, one in zip(logits, hidden, strict=True):
            row[self._next.get(float(one[0]), self._vocab_size - 1)] = 1.0
        return logits


@functools.cache
def words() -> Tokenizer:
    """Every second letter makes a pair with any other; the last token ends a text."""
    pairs = list(product(_LETTERS[::2], _LETTERS[::3]))
    tokens = [*reversed(_LETTERS), *map("".join, pairs)]
    backend = Backend(BPE(vocab={text: i for i, text in enumerate(tokens)}, merges=pairs))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("<end>", special=True, normalized=False)])
    return Tokenizer(backend, special_tokens={"eos_token": "<end>"})


def in_words(token_ids: Sequence[int]) -> list[int]:
    """The draft's tokens for the target's; the end of a text is none."""
    return words().encode("".join([letter(token) for token in token_ids if token != EOS]))


def reciting(texts: Iterable[tuple[list[int], list[int]]]) -> Reciting:
    """Knows how these texts go on behind each of their tokens.

    Args:
        texts: A prompt and an output, in the target's tokens.
    """
    known = []
    for prompt, output in texts:
        for n in range(len(output)):
            known.append((in_words([*prompt, *output[:n]]), in_words(output[n:])))
    return Reciting(known, words().vocab_size)


def draft_with_words(
    model: ReadingModel, *, block_size: int, num_blocks: int, max_len: int, budget: int
) -> DraftParts:
    """A draft model without a device, for a tiny Llama whose tokens are letters.

    Args:
        num_blocks: Number of blocks of its cache.
        max_len: The longest text that it reads, in its tokens.
        budget: Tokens that it computes in one step.
    """
    width = -(-max_len // block_size)
    sizes = Capabilities(words().vocab_size, block_size, num_blocks, 0, width, 64)
    tokenizers = letters(VOCAB, EOS), words()
    runner = StubRunner(model, sizes)
    return DraftParts(runner, num_blocks, max_len, budget, cost=0.3, tokenizers=tokenizers)
