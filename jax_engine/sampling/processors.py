"""`logits_processors`: the user's own functions of the logits, run on the host."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

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
