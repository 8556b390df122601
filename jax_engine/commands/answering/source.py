"""What a source of answers is."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from jax_engine.errors import JaxEngineError


class Piece(NamedTuple):
    """What is new in a sample of an answer."""

    sample: int
    text: str


class ServerError(JaxEngineError):
    """A server cannot be reached, or has answered with an error."""


class Source(Protocol):
    """
    Raises of its methods:
        JaxEngineError: there is no answer, or no rest of it.
        KeyboardInterrupt: Ctrl-C has ended the answer; the next one can be asked for.
    """

    def complete(self, prompt: str, fields: Mapping[str, Any]) -> Iterator[Piece]:
        """Continues a text.

        Args:
            fields: of the request, with OpenAI's and vLLM's names.
        """
        ...

    def chat(
        self, messages: Sequence[Mapping[str, Any]], fields: Mapping[str, Any]
    ) -> Iterator[Piece]:
        """Says what comes next in a conversation."""
        ...
