"""The few shapes that steps are compiled for.

A step of any size runs in the smallest bucket that holds it. Pure decode steps have one token a
sequence (T = S, powers of two). All others have at least two tokens a row of S, token counts in
powers of two and rows in powers of four, so that a mixed workload meets few combinations.
"""

from dataclasses import dataclass

MIN_MIXED_TOKENS = 16
MIN_MIXED_ROWS = 8
MIN_BIAS = 256
MIN_HISTORY = 4096


@dataclass(frozen=True)
class StepShape:
    """Static sizes of one compiled step.

    Attributes:
        num_tokens: T, padded.
        num_rows: S, padded: sequences of the step, and as many sampled tokens (R).
        num_bias: Entries of the sparse logit bias, 0 in a program that has none.
        num_history: Entries of the token history for penalties, 0 in a program that has none.
        decode_only: Every sequence has at most one token.
    """

    num_tokens: int
    num_rows: int
    num_bias: int = 0
    num_history: int = 0
    decode_only: bool = False

    def __str__(self) -> str:
        kind = "decode" if self.decode_only else "mixed"
        extra = f", bias {self.num_bias}" if self.num_bias else ""
        extra += f", history {self.num_history}" if self.num_history else ""
        return f"{kind} step of {self.num_tokens} tokens, {self.num_rows} rows{extra}"


def step_shape(
    num_tokens: int, num_seqs: int, num_samples: int, num_bias: int = 0, num_history: int = 0
) -> StepShape:
    """The bucket for a step of that many real tokens, sequences and sampled tokens."""
    bias = _bucket(num_bias, MIN_BIAS, 4) if num_bias else 0
    history = _bucket(num_history, MIN_HISTORY, 4) if num_history else 0
    rows = max(num_seqs, num_samples)
    if num_tokens == num_seqs and num_samples <= num_seqs:
        size = _bucket(rows, 1, 2)
        return StepShape(size, size, bias, history, decode_only=True)
    num_rows = _bucket(rows, MIN_MIXED_ROWS, 4)
    return StepShape(
        _bucket(max(num_tokens, 2 * num_rows), MIN_MIXED_TOKENS, 2), num_rows, bias, history
    )


def largest_step_shape(max_num_batched_tokens: int, max_num_seqs: int) -> StepShape:
    """The bucket that needs the most memory."""
    seqs = min(max_num_seqs, max_num_batched_tokens)
    return step_shape(max_num_batched_tokens, seqs - (seqs == max_num_batched_tokens), max_num_seqs)


def _bucket(size: int, smallest: int, factor: int) -> int:
    bucket = smallest
    while bucket < size:
        bucket *= factor
    return bucket
