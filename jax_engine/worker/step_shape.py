"""The few shapes that steps are compiled for: 20 with the default limits, 30 on a GPU.

A step of any size runs in the smallest bucket that holds it. Pure decode steps have one token a
sequence (T = S). Up to 256 rows, the bucket of any other step follows from its tokens: it has half
as many rows as tokens, at most 256. A GPU has more buckets above 256 tokens, all with 256 rows
(`Device.mixed_tokens`).
"""

from dataclasses import dataclass, replace

from jax_engine.operations.device import this_device

# Dense where ShareGPT's decode steps are; after 64, powers of two.
DECODE_SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
MANY_ROWS = 256
# A GPU's kernels of adapters copy whole tiles of rows. One more program for each small step would
# not pay.
ROWS_WITH_ADAPTERS = 8
# A step that edits logits has room for both kinds of entries, so that each shape has two programs,
# not four. The room grows by factors of 16.
MIN_BIAS, MIN_HISTORY, EDITS_FACTOR = 256, 4096, 16


@dataclass(frozen=True)
class StepShape:
    """Static sizes of one compiled step.

    Attributes:
        num_tokens: T, padded.
        num_rows: S, padded: the step's sequences, and equally many sampled tokens (R).
        num_bias: Entries of the sparse logit bias, 0 in a program that edits no logits.
        num_history: Entries of the token history for penalties, 0 in the same programs.
        decode_only: Every token is a decode: the one of its row, or a guess behind it.
        split: The program ends with the logits, and another one samples. The host computes masks
            in between.
        prompt_logprobs: It also computes log-probabilities of the prompts' tokens.
        whole_prompt_logprobs: These are of all tokens of the vocabulary.
        pooling: It also returns each sequence's hidden states, pooled.
        lora: Some rows have adapters, where a branch in the program would make the host wait.
            Elsewhere one program serves steps with and without them.
        embeds: Some tokens are positions of prompts that are given as embeddings.
    """

    num_tokens: int
    num_rows: int
    num_bias: int = 0
    num_history: int = 0
    decode_only: bool = False
    split: bool = False
    prompt_logprobs: bool = False
    whole_prompt_logprobs: bool = False
    pooling: bool = False
    lora: bool = False
    embeds: bool = False

    def __str__(self) -> str:
        kind = "decode" if self.decode_only else "mixed"
        extra = f", bias {self.num_bias}" if self.num_bias else ""
        extra += f", history {self.num_history}" if self.num_history else ""
        extra += ", without sampling" if self.split else ""
        extra += ", with prompt log-probabilities" if self.prompt_logprobs else ""
        extra += " of all tokens" if self.whole_prompt_logprobs else ""
        extra += ", with pooling" if self.pooling else ""
        extra += ", with adapters" if self.lora else ""
        extra += ", with embeddings" if self.embeds else ""
        return f"{kind} step of {self.num_tokens} tokens, {self.num_rows} rows{extra}"


def step_shape(
    num_tokens: int,
    num_seqs: int,
    num_samples: int,
    num_bias: int = 0,
    num_history: int = 0,
    *,
    prompts: bool = False,
) -> StepShape:
    """The bucket for a step of that many real tokens, sequences and sampled tokens.

    Args:
        prompts: Whether a token is a prompt's, where that forbids a step that only decodes.
    """
    bias, history = _edits(num_bias, num_history) if num_bias or num_history else (0, 0)
    rows = max(num_seqs, num_samples)
    if num_tokens == num_seqs and num_samples <= num_seqs and not prompts:
        size = bucket(rows, DECODE_SIZES)
        return StepShape(size, size, bias, history, decode_only=True)
    return StepShape(*_mixed(num_tokens, rows), bias, history)


def with_adapters(shape: StepShape) -> StepShape:
    """The bucket of a step in which some rows have adapters."""
    if not shape.decode_only:
        return replace(shape, lora=True)
    rows = -(-shape.num_rows // ROWS_WITH_ADAPTERS) * ROWS_WITH_ADAPTERS
    return replace(shape, num_tokens=rows, num_rows=rows, lora=True)


def all_step_shapes(max_num_batched_tokens: int, max_num_seqs: int) -> list[StepShape]:
    """Every shape without logit edits that `step_shape` returns within these limits, small first.

    Buckets are found where they begin: a size, or a number of rows, one above the bucket before.
    """
    most_rows = min(max_num_seqs, max_num_batched_tokens)
    shapes = {step_shape(n, n, n) for n in _starts(most_rows, DECODE_SIZES)}
    for rows in _starts(max_num_seqs, DECODE_SIZES):
        for tokens in _starts(max_num_batched_tokens, (1, *this_device().mixed_tokens)):
            if tokens > 1 or rows > 1:
                shapes.add(StepShape(*_mixed(tokens, rows)))
    return sorted(shapes, key=lambda s: (not s.decode_only, s.num_tokens, s.num_rows))


def largest_step_shape(max_num_batched_tokens: int, max_num_seqs: int) -> StepShape:
    """The bucket that needs the most memory."""
    return StepShape(*_mixed(max_num_batched_tokens, max_num_seqs))


def _mixed(num_tokens: int, num_rows: int) -> tuple[int, int]:
    """(T, rows): 129 to 256 rows take the first bucket of more than 256 tokens, or a larger one."""
    sizes = this_device().mixed_tokens
    if num_rows > MANY_ROWS:
        rows = bucket(num_rows, DECODE_SIZES)
        return bucket(max(num_tokens, 2 * rows), sizes), rows
    tokens = bucket(max(num_tokens, min(2 * num_rows, MANY_ROWS + 1)), sizes)
    return tokens, tokens // 2 if tokens <= MANY_ROWS else MANY_ROWS


def _edits(num_bias: int, num_history: int) -> tuple[int, int]:
    """Room for both kinds of sparse edits of logits."""
    factor = 1
    while MIN_BIAS * factor < num_bias or MIN_HISTORY * factor < num_history:
        factor *= EDITS_FACTOR
    return MIN_BIAS * factor, MIN_HISTORY * factor


def bucket(size: int, sizes: tuple[int, ...]) -> int:
    """The first of `sizes` that holds `size`, or the last one doubled until it does."""
    for bucket in sizes:
        if bucket >= size:
            return bucket
    bucket = sizes[-1]
    while bucket < size:
        bucket *= 2
    return bucket


def _starts(most: int, sizes: tuple[int, ...]) -> list[int]:
    """The smallest size of every bucket up to `most`."""
    starts = [1]
    while (following := bucket(starts[-1], sizes) + 1) <= most:
        starts.append(following)
    return starts
