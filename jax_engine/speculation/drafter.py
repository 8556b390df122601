"""What a drafter is asked for, and a drafter of the user's own.

`Drafter` is the interface of all that guess tokens. `CustomDrafter` puts it around a class with
vLLM's interface of custom proposers.
"""

import inspect
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Int32

from jax_engine.checks import shown
from jax_engine.errors import ConfigError
from jax_engine.step import RequestSetup


class CacheView(NamedTuple):
    """What a drafter with a KV cache of its own wants to know of a sequence beside its tokens.

    Attributes:
        blocks: [N] The blocks of the target's cache that hold all tokens but the last; a view, not
            to be kept.
        own_end: Whether no other sequence uses the block into which the last token goes, if the
            sequence has it yet.
        setup: Its request.
        sample: Which of the request's samples it is.
        room: How many guesses can be right at most: one more token ends it for its length.
        salt: The request's `cache_salt`.
    """

    blocks: Int32[np.ndarray, " N"]
    own_end: bool
    setup: RequestSetup
    sample: int
    room: int
    salt: str | None = None


class DraftRequest(NamedTuple):
    """A sequence for whose next tokens guesses are wanted.

    Attributes:
        seq_id: Its name, which no later sequence of the engine has.
        token_ids: Prompt and output so far; not to be changed, and not to be kept: it grows.
        prompt_len: How many of them are its prompt.
        most: How many guesses are wanted at most, at least 1.
        shares: Whether texts of other requests may be compared with it: not with a `cache_salt`.
        held: Where its keys and values lie, and how its tokens are drawn.
        adapter: The digest of its LoRA adapter, whose texts are its own; None: the model alone.
    """

    seq_id: int
    token_ids: list[int]
    prompt_len: int
    most: int
    shares: bool = True
    held: CacheView | None = None
    adapter: str | None = None


class PendingDraft(NamedTuple):
    """A sequence whose guesses a step verifies that the host has not read.

    Attributes:
        asked: The sequence as it was before that step, and how many guesses are wanted behind it.
        place: Its row of the step.
        drawn: The sample of the step behind its last known token.
        num_guesses: How many guesses are verified.
    """

    asked: DraftRequest
    place: int
    drawn: int
    num_guesses: int


class Drafter(Protocol):
    """Guesses tokens. What it guesses changes how long an answer takes, and never the answer."""

    def propose(self, asked: Sequence[DraftRequest]) -> Sequence[Sequence[int] | None]:
        """For each sequence its guesses, best first in time: the next token comes first.

        Guesses beyond `most` are dropped, and so are those from the first on that is no token of
        the model. There may be none. None: it cannot guess for this sequence yet, and nothing
        follows from that.
        """

    def promises(self, one: DraftRequest) -> bool:
        """Whether there may be guesses worth waiting for when one more token is known.

        If not, the step that verifies them need not wait for that token: it is planned ahead.
        """

    def forget(self, seq_ids: set[int]) -> None:
        """These sequences have ended."""


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

    def propose(self, asked: Sequence[DraftRequest]) -> Sequence[Sequence[int]]:
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

    def promises(self, one: DraftRequest) -> bool:
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
