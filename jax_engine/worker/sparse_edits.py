"""The sparse edits of a step's logits: biases, forbidden tokens, and tokens with penalties."""

import numpy as np
from jaxtyping import Int, Int32

from jax_engine.step import RequestSetup, Row

_NONE = np.zeros((3, 0), np.int32)


def sparse_entries(
    rows: list[Row],
    of_samples: list[RequestSetup],
    row_of_sample: Int[np.ndarray, " samples"],
    position_of_sample: Int[np.ndarray, " samples"],
) -> tuple[Int32[np.ndarray, "3 NB"], Int32[np.ndarray, "3 NH"]]:
    """Bias entries (sample, token, bits) and history entries (sample, token, is_output) of a step.

    Args:
        of_samples: Each sample's request.
        position_of_sample: How many tokens of its sequence it follows.
    """
    if not any([setup.edits_logits for setup in of_samples]):
        return _NONE, _NONE
    bias: list[np.ndarray] = []
    history: list[np.ndarray] = []
    known: dict[int, np.ndarray] = {}
    places = zip(row_of_sample.tolist(), position_of_sample.tolist(), strict=True)
    for i, ((row, position), setup) in enumerate(zip(places, of_samples, strict=True)):
        prompt_len = len(setup.prompt_token_ids)
        num_output = max(position - prompt_len, 0)
        if setup.bias.size:
            bias.append(_of_sample(i, setup.bias))
        if num_output < setup.min_tokens:
            bias.append(_of_sample(i, setup.forbidden))
        if setup.has_penalties:
            if row not in known:
                known[row] = _history(rows[row], prompt_len)
            history.append(_of_sample(i, known[row][:, :position]))
    return (
        np.concatenate(bias, axis=1) if bias else _NONE,
        np.concatenate(history, axis=1) if history else _NONE,
    )


def _history(row: Row, prompt_len: int) -> np.ndarray:
    assert row.history is not None
    tokens = np.array(row.history, np.int32)
    return np.stack([tokens, (np.arange(len(tokens)) >= prompt_len).astype(np.int32)])


def _of_sample(sample: int, entries: np.ndarray) -> np.ndarray:
    return np.concatenate([np.full((1, entries.shape[1]), sample, np.int32), entries])
