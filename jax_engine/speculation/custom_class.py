"""A drafter of the user's: a class with vLLM's interface of custom proposers."""

import inspect
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from jax_engine.checks import shown
from jax_engine.errors import ConfigError
from jax_engine.speculation.drafter import Asked


class CustomDrafter:
    """Asks an object of the class, which is made with the engine's `vllm_config`.

        propose(sampled_token_ids, num_tokens_no_spec, token_ids_cpu, slot_mappings=None)

    gets, of each sequence: a list of the tokens that it got since it was asked last; how many
    tokens it has; and a row of all of them, padded with zeros. It returns a list of guesses each.

    Args:
        model: The class, or its name ("module.Class").

    Raises:
        ConfigError: There is no such class, or it has no such method.
    """

    def __init__(self, model: Any, vllm_config: Any) -> None:
        made = _class_of(model)(vllm_config)
        if not callable(getattr(made, "propose", None)):
            raise ConfigError(
                f"speculative_config: model must be a class with a method propose, got "
                f"{shown(model)}"
            )
        self._propose = made.propose
        self._known: dict[int, int] = {}

    def propose(self, asked: Sequence[Asked]) -> Sequence[Sequence[int]]:
        lengths = np.array([len(one.token_ids) for one in asked], np.int32)
        rows = np.zeros((len(asked), int(lengths.max())), np.int32)
        new = []
        for row, one in zip(rows, asked, strict=True):
            row[: len(one.token_ids)] = one.token_ids
            new.append(one.token_ids[self._known.get(one.seq_id, one.prompt_len) :])
            self._known[one.seq_id] = len(one.token_ids)
        found = self._propose(new, lengths, rows)
        if found is None or len(found) != len(asked):
            raise ValueError(
                f"propose must return a list of guesses for each of {len(asked)} sequences, got "
                f"{shown(found)}"
            )
        return [[int(token) for token in (() if one is None else one)] for one in found]

    def promises(self, one: Asked) -> bool:
        """The class alone could tell, and vLLM's interface does not ask it."""
        return True

    def forget(self, seq_ids: set[int]) -> None:
        for seq_id in seq_ids:
            self._known.pop(seq_id, None)


def _class_of(model: Any) -> type:
    """
    Raises:
        ConfigError: It is no class and names none.
    """
    found = model
    if isinstance(model, str):
        module, _, name = model.replace(":", ".").rpartition(".")
        try:
            found = getattr(import_module(module), name)
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            raise ConfigError(
                f"speculative_config: model must be a class or its name ('module.Class') with "
                f"method 'custom_class', got {shown(model)}: {error}"
            ) from error
    if not inspect.isclass(found):
        raise ConfigError(
            f"speculative_config: model must be a class or its name ('module.Class') with method "
            f"'custom_class', got {shown(model)}"
        )
    return found
