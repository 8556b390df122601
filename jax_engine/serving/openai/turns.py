"""What a model says in a turn, apart: content, reasoning, and calls of tools."""

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class CallPiece:
    """What is new in a call of a tool.

    Attributes:
        index: the number of the call in its turn.
        arguments: what is new of a JSON object's text.
        id: given with a call's first piece, as its name is.
        at: how much of the content that is new stands before it; None: all.
    """

    index: int
    arguments: str = ""
    id: str | None = None
    name: str | None = None
    at: int | None = None


@dataclass(frozen=True)
class Said:
    """What is new in a turn."""

    content: str = ""
    reasoning: str = ""
    calls: list[CallPiece] = field(default_factory=list)


class Turn(Protocol):
    """Reads the text of one turn as it comes.

    Pieces of any size give, together, the same as the whole text at once.
    """

    def take(self, text: str, *, ended: bool, cut: bool = False) -> Said:
        """
        Args:
            text: what is new.
            ended: whether nothing follows.
            cut: whether the end is not the model's own, so that a call may lack its arguments.
        """

    @property
    def calls_tools(self) -> bool:
        """Whether a tool was called so far: then the turn ends with "tool_calls"."""
