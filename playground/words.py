"""What requests say in a playground, where there is no model: words by chance, from a seed.

>>> prompts(seed=1, count=2)
['To be or', 'It was the best of times']
"""

import random
from collections.abc import Iterator, Mapping

from playground.trace_run import STOP

PROMPTS = (
    "Four score and seven years ago our",
    "It was the best of times",
    "To be or",
    "rain on the old stone bridge",
    "we sat under the tall tree and",
    "once upon a time there was a",
    "the cat sat on the",
    "a gentle breeze stirred the leaves as children laughed in the",
    "in the beginning was the word and",
)
WORDS = (
    "and", "so", "the", "day", "went", "on", "with", "light", "over", "hills", "rivers", "stones",
    "bread", "wind", "songs", "ships", "birds", "fields", "rain", "snow", "roads", "doors", "stars",
    "bells",
)  # fmt: skip
WAYS = 4  # words that may follow a word in a beam search


def prompts(seed: int, count: int) -> list[str]:
    """So many prompts, no two alike."""
    return random.Random(f"{seed} prompts").sample(PROMPTS, count)


def output(seed: int, name: str, sample: int, length: int) -> str:
    """So many words at the most; the last is a full stop. The first sample is never shorter."""
    chance = random.Random(f"{seed} {name} {sample}")
    if sample:
        length = chance.randint(max(1, length // 2), length)
    return " ".join([*(chance.choice(WORDS) for _ in range(length - 1)), STOP])


class Ways(Mapping[str, Mapping[str, float]]):
    """For a beam search: after any word, words that may follow, with their probabilities."""

    def __init__(self, seed: int, name: str) -> None:
        self._seed = f"{seed} {name}"

    def __getitem__(self, word: str) -> Mapping[str, float]:
        chance = random.Random(f"{self._seed} {word}")
        followers = [*chance.sample(WORDS, WAYS - 1), STOP]
        weights = sorted((chance.random() for _ in followers), reverse=True)
        return {
            follower: weight / sum(weights)
            for follower, weight in zip(followers, weights, strict=True)
        }

    def __iter__(self) -> Iterator[str]:
        return iter(WORDS)

    def __len__(self) -> int:
        return len(WORDS)
