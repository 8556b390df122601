"""The parser of a whole turn, of a model that may reason and call tools.

Special tokens come first: they are left out of a text that shows them only because a marker is one
of them.
"""

from collections.abc import Sequence

from jax_engine.serving.parsers.parser_base import (
    CallDelta,
    CallReader,
    Markers,
    Reading,
    ReasoningReader,
    StreamParser,
    TurnDelta,
)
from jax_engine.serving.parsers.plugin_readers import PluginTurn


class SpecialTokenFilter(StreamParser):
    """Text without these tokens."""

    def __init__(self, hidden: Markers) -> None:
        self._hidden = hidden
        self._text: list[str] = []
        super().__init__()

    def take(self, text: str, *, ended: bool) -> str:
        """What is new."""
        self.feed(text, ended=ended)
        new, self._text = "".join(self._text), []
        return new

    def _read(self) -> Reading[None]:
        while (yield from self.until(self._hidden)):
            pass

    def emit(self, text: str) -> None:
        """As `StreamParser.emit`."""
        self._text.append(text)


class TurnParser:
    """Each of its readers reads what the one before leaves; None reads nothing.

    Args:
        plugin: what readers of plugins see beside the text.
    """

    def __init__(
        self,
        special: SpecialTokenFilter | None,
        reasoning: ReasoningReader | None,
        calls: CallReader | None,
        *,
        include_reasoning: bool = True,
        plugin: PluginTurn | None = None,
    ) -> None:
        self._special, self._reasoning, self._calls = special, reasoning, calls
        self._include, self._plugin = include_reasoning, plugin

    def take(
        self, text: str, *, ended: bool, cut: bool = False, token_ids: Sequence[int] = ()
    ) -> TurnDelta:
        """As `Turn.take`."""
        if self._plugin is not None:
            self._plugin.take(token_ids)
        if self._special is not None:
            text = self._special.take(text, ended=ended)
        reasoning, pieces = "", list[CallDelta]()
        if self._reasoning is not None:
            reasoning, text = self._reasoning.take(text, ended=ended)
        if self._calls is not None:
            text, pieces = self._calls.take(text, ended=ended, cut=cut)
        return TurnDelta(text, reasoning if self._include else "", pieces)

    @property
    def calls_tools(self) -> bool:
        """As `Turn.calls_tools`; not while a call's arguments are incomplete."""
        calls = self._calls
        return calls is not None and calls.num_calls > 0 and not calls.open
