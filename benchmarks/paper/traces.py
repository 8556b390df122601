"""Traces with the request lengths of the paper's data sets (Figure 11), Poisson arrivals.

No text is needed, only lengths. ShareGPT's are drawn from `benchmarks/data/sharegpt_lengths.csv`,
scaled so that their means are the paper's: the file was counted with another tokenizer and cut into
turns in another way, so its own means are 235 and 217. Of Alpaca and WMT16 only means are known or
assumed, so their lengths are drawn from simple distributions.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from benchmarks.workload import read_lengths
from reference.simulator import TraceRequest

SHAREGPT: Final = (161.31, 337.99)
"""Mean input and output length in tokens, of the paper (Figure 11)."""
ALPACA: Final = (19.31, 58.45)
SENTENCE: Final = (35.0, 40.0)
"""The lengths of WMT16 English to German, an assumption: the paper does not say."""
MAX_MODEL_LEN = 2048
EARLIER_TURNS = 8.0
"""Mean number of turns that a chat looks back on, an assumption: most prompts reach 1024 tokens."""

Lengths = Callable[[np.random.Generator], tuple[int, int]]


def _sharegpt_pairs() -> np.ndarray:
    """[turns, 2], scaled to the paper's means and cut to the model's length."""
    raw = np.array(read_lengths(), float)
    scaled = raw * (np.array(SHAREGPT) / raw.mean(axis=0))
    pairs = np.maximum(1, np.rint(scaled)).astype(int)
    pairs[:, 1] = np.minimum(pairs[:, 1], MAX_MODEL_LEN - pairs[:, 0])
    return pairs


def sharegpt() -> Lengths:
    """Single turns."""
    pairs = _sharegpt_pairs()

    def draw(rng: np.random.Generator) -> tuple[int, int]:
        prompt, output = pairs[rng.integers(len(pairs))]
        return int(prompt), int(output)

    return draw


def alpaca() -> Lengths:
    """Inputs from a gamma distribution of shape 4, outputs from a geometric one."""
    return _drawn(ALPACA)


def sentences(prefix_len: int) -> Lengths:
    """A prefix that all requests share, and a sentence to translate."""
    draw = _drawn(SENTENCE, shape=4.0)

    def with_prefix(rng: np.random.Generator) -> tuple[int, int]:
        prompt, output = draw(rng)
        return prefix_len + prompt, output

    return with_prefix


def chat() -> Lengths:
    """A turn behind earlier ones: the last 1024 tokens of them all, at most 1024 of output."""
    pairs = _sharegpt_pairs()

    def draw(rng: np.random.Generator) -> tuple[int, int]:
        earlier = rng.geometric(1 / (1 + EARLIER_TURNS)) - 1
        turns = pairs[rng.integers(len(pairs), size=earlier + 1)]
        prompt = int(turns.sum() - turns[-1, 1])
        return min(prompt, 1024), int(min(turns[-1, 1], 1024))

    return draw


def _drawn(means: tuple[float, float], shape: float = 1.0) -> Lengths:
    def draw(rng: np.random.Generator) -> tuple[int, int]:
        prompt = max(1, round(rng.gamma(4.0, means[0] / 4.0)))
        output = max(1, round(rng.gamma(shape, means[1] / shape)))
        return min(prompt, 1024), min(output, 1024)

    return draw


def trace(
    lengths: Lengths,
    rate: float,
    seconds: float,
    *,
    num_samples: int = 1,
    prefix_len: int = 0,
    beam_search: bool = False,
    seed: int = 0,
) -> list[TraceRequest]:
    """Requests that arrive in so many seconds, at `rate` a second; the same for the same seed."""
    rng = np.random.default_rng(seed)
    requests = []
    clock = rng.exponential(1 / rate)
    while clock < seconds:
        prompt, output = lengths(rng)
        requests.append(
            TraceRequest(float(clock), prompt, output, num_samples, prefix_len, beam_search)
        )
        clock += rng.exponential(1 / rate)
    return requests
