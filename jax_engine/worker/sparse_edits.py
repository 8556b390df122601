"""The sparse edits of a step's logits: biases, forbidden tokens, and tokens with penalties."""

import numpy as np
from jaxtyping import Int32

from jax_engine.step import RequestSetup, Row

_NONE = np.zeros((3, 0), np.int32)


def sparse_entries(
    rows: list[Row], of_rows: list[RequestSetup]
) -> tuple[Int32[np.ndarray, "3 NB"], Int32[np.ndarray, "3 NH"]]:
    """Bias entries (row, token, bits) and history entries (row, token, is_output) of a step.

    Args:
        of_rows: Each row's request.
    """
    if not any([setup.edits_logits for setup in of_rows]):
        return _NONE, _NONE
    bias: list[np.ndarray] = []
    history: list[np.ndarray] = []
    first = 0
    for row, setup in zip(rows, of_rows, strict=True):
        samples = range(first, first + row.num_samples)
        first += row.num_samples
        prompt_len = len(setup.prompt_token_ids)
        if setup.bias.size:
            bias += [_with_row(r, setup.bias) for r in samples]
        if row.end - prompt_len < setup.min_tokens:
            bias += [_with_row(r, setup.forbidden) for r in samples]
        if setup.has_penalties and samples:
            entries = _history(row, prompt_len)
            history += [_with_row(r, entries) for r in samples]
    return (
        np.concatenate(bias, axis=1) if bias else _NONE,
        np.concatenate(history, axis=1) if history else _NONE,
    )


def _history(row: Row, prompt_len: int) -> np.ndarray:
    assert row.history is not None
    tokens = np.array(row.history, np.int32)
    return np.stack([tokens, (np.arange(len(tokens)) >= prompt_len).astype(np.int32)])


def _with_row(row: int, entries: np.ndarray) -> np.ndarray:
    return np.concatenate([np.full((1, entries.shape[1]), row, np.int32), entries])
