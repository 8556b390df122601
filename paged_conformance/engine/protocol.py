"""What an engine's adapter gives: four methods that every engine has, and a few that some have."""

from typing import Any, NotRequired, Protocol, TypedDict

type Parameters = dict[str, Any]  # the words of `PARAMETERS` in this package's docstring


class Output(TypedDict):
    """What is new of one sample of a request.

    Attributes:
        id: The name under which the request was added.
        index: Which of its samples: 0 to n - 1.
        token_ids: All tokens of the sample so far; of a request of kind "delta" the new ones.
        text: Likewise, where the engine makes text; else None.
        logprobs: Natural logarithms of the tokens' probabilities, one for each of `token_ids`;
            None where there are none.
        top: For each of `token_ids`, the most probable tokens as pairs [token, logprob], the most
            probable first; None unless the request asked for them.
        finish_reason: "stop", "length", "abort" or "error" once the sample has ended, else None.
    """

    id: str
    index: int
    token_ids: list[int]
    text: str | None
    logprobs: NotRequired[list[float] | None]
    top: NotRequired[list[list[list[float]]] | None]
    finish_reason: str | None


class Engine(Protocol):
    """An engine with a model of its own. All arguments are passed by name."""

    def add(self, *, id: str, prompt: list[int], params: Parameters) -> None:
        """Accepts a request, or raises Refused: then nothing of it is left."""

    def abort(self, *, ids: list[str]) -> list[Output]:
        """Ends those that run, and passes over the others; returns last outputs, or none."""

    def step(self) -> list[Output]:
        """What is new. It may be nothing; it should not wait longer than a tenth of a second."""

    def is_busy(self) -> bool:
        """Whether a request is unfinished, or an output has not been returned yet."""


class MoreThanThat(Engine, Protocol):
    """The methods of some engines; a capability says that a target has them."""

    def state(self) -> dict[str, int]:
        """`state`: counts by name, all of them 0 when nothing is left of any request."""

    def rest(self) -> None:
        """`sessions`: ends a batch of work on an idle engine; the next `add` begins another."""

    def flush(self) -> None:
        """`prefix_cache`: forgets all cached blocks. Called on an idle engine."""

    def model(self) -> dict[str, Any]:
        """`oracle_model`: {"config": TransformerConfig's arguments, "weights": a path of .npz}."""
