"""What a drafter is asked for, and the drafter that an engine's settings name."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Asked(NamedTuple):
    """A sequence for whose next tokens guesses are wanted.

    Attributes:
        seq_id: Its name, which no later sequence of the engine has.
        token_ids: Prompt and output so far; not to be changed, and not to be kept: it grows.
        prompt_len: How many of them are its prompt.
        most: How many guesses are wanted at most, at least 1.
        shares: Whether texts of other requests may be compared with it: not with a `cache_salt`.
    """

    seq_id: int
    token_ids: list[int]
    prompt_len: int
    most: int
    shares: bool = True


class Drafter(Protocol):
    """Guesses tokens. What it guesses changes how long an answer takes, and never the answer."""

    def propose(self, asked: Sequence[Asked]) -> Sequence[Sequence[int]]:
        """For each sequence its guesses, best first in time: the next token comes first.

        Guesses beyond `most` are dropped, and so are those from the first on that is no token of
        the model. There may be none.
        """

    def promises(self, one: Asked) -> bool:
        """Whether there may be guesses worth waiting for when one more token is known.

        If not, the step that verifies them need not wait for that token: it is planned ahead.
        """

    def forget(self, seq_ids: set[int]) -> None:
        """These sequences have ended."""
