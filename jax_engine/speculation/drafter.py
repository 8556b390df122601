"""What a drafter is asked for, and the drafter that an engine's settings name."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Int32

from jax_engine.step import RequestSetup


class Held(NamedTuple):
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


class Asked(NamedTuple):
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
    held: Held | None = None
    adapter: str | None = None


class Verifying(NamedTuple):
    """A sequence whose guesses a step verifies that the host has not read.

    Attributes:
        asked: The sequence as it was before that step, and how many guesses are wanted behind it.
        place: Its row of the step.
        drawn: The sample of the step behind its last known token.
        num_guesses: How many guesses are verified.
    """

    asked: Asked
    place: int
    drawn: int
    num_guesses: int


class Drafter(Protocol):
    """Guesses tokens. What it guesses changes how long an answer takes, and never the answer."""

    def propose(self, asked: Sequence[Asked]) -> Sequence[Sequence[int] | None]:
        """For each sequence its guesses, best first in time: the next token comes first.

        Guesses beyond `most` are dropped, and so are those from the first on that is no token of
        the model. There may be none. None: it cannot guess for this sequence yet, and nothing
        follows from that.
        """

    def promises(self, one: Asked) -> bool:
        """Whether there may be guesses worth waiting for when one more token is known.

        If not, the step that verifies them need not wait for that token: it is planned ahead.
        """

    def forget(self, seq_ids: set[int]) -> None:
        """These sequences have ended."""
