"""The turn of a model that may reason and call tools."""

from jax_engine.serving.openai.tools.call_reader import CallReader
from jax_engine.serving.openai.tools.reasoning import ReasoningReader
from jax_engine.serving.openai.tools.special import SpecialReader
from jax_engine.serving.openai.turns import CallPiece, Said


class ModelTurn:
    """Each of its readers reads what the one before leaves; None reads nothing."""

    def __init__(
        self,
        special: SpecialReader | None,
        reasoning: ReasoningReader | None,
        calls: CallReader | None,
        *,
        include_reasoning: bool = True,
    ) -> None:
        self._special, self._reasoning, self._calls = special, reasoning, calls
        self._include = include_reasoning

    def take(self, text: str, *, ended: bool, cut: bool = False) -> Said:
        """As `Turn.take`."""
        if self._special is not None:
            text = self._special.take(text, ended=ended)
        reasoning, pieces = "", list[CallPiece]()
        if self._reasoning is not None:
            reasoning, text = self._reasoning.take(text, ended=ended)
        if self._calls is not None:
            text, pieces = self._calls.take(text, ended=ended, cut=cut)
        return Said(text, reasoning if self._include else "", pieces)

    @property
    def calls_tools(self) -> bool:
        """As `Turn.calls_tools`; not while a call's arguments are incomplete."""
        calls = self._calls
        return calls is not None and calls.num_calls > 0 and not calls.open
