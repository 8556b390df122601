"""Requests with the lengths of real conversations (ShareGPT, as in §6.1 of the paper).

`benchmarks/data/sharegpt_lengths.csv` has (prompt, output) lengths in tokens of 15,419 turns,
counted with SmolLM2's tokenizer. The texts are not needed: a token's value costs nothing.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

LENGTHS = Path(__file__).parent / "data" / "sharegpt_lengths.csv"


@dataclass(frozen=True)
class Request:
    """One request of a trace.

    Attributes:
        arrival_s: Seconds after the start of the trace.
        prompt_token_ids: Random tokens, so that no two prompts share a prefix by chance.
        output_len: Tokens to generate, end-of-sequence ignored.
    """

    arrival_s: float
    prompt_token_ids: list[int]
    output_len: int


def read_lengths(path: Path = LENGTHS) -> list[tuple[int, int]]:
    """(prompt, output) lengths in tokens, in the file's order."""
    with path.open(newline="") as file:
        return [
            (int(row["prompt_tokens"]), int(row["output_tokens"])) for row in csv.DictReader(file)
        ]


def sharegpt_requests(
    count: int,
    *,
    request_rate: float = float("inf"),
    vocab_size: int,
    max_model_len: int,
    seed: int = 0,
) -> list[Request]:
    """`count` requests drawn from the trace; the same for the same seed.

    Args:
        count: Number of requests.
        request_rate: Poisson arrivals a second; infinite: all at time 0.
        vocab_size: V; token ids are drawn from [3, V), past the usual special tokens.
        max_model_len: Lengths that do not fit are not drawn.
        seed: Seed of lengths, arrivals and tokens.
    """
    rng = np.random.default_rng(seed)
    fitting = [pair for pair in read_lengths() if sum(pair) <= max_model_len]
    if not fitting:
        raise SystemExit(f"no conversation fits max_model_len {max_model_len}")
    picks = rng.integers(len(fitting), size=count)
    gaps = rng.exponential(1.0 / request_rate, size=count) if np.isfinite(request_rate) else None
    arrivals = np.zeros(count) if gaps is None else np.cumsum(gaps)
    requests = []
    for pick, arrival in zip(picks, arrivals, strict=True):
        prompt_len, output_len = fitting[pick]
        tokens = rng.integers(3, vocab_size, size=prompt_len).tolist()
        requests.append(Request(float(arrival), tokens, output_len))
    return requests
