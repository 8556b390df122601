"""What an adapter of a detokenizer has; the package's docstring says what each means."""

from typing import Any, Protocol


class Detokenizer(Protocol):
    """The text of one output. Arguments come by keyword."""

    def open(
        self,
        *,
        prompt: list[int],
        stop: list[str],
        include_stop: bool,
        min_tokens: int,
        skip_special_tokens: bool,
    ) -> None:
        """Begins an output."""

    def add(self, *, tokens: list[int], ends: bool) -> dict[str, Any]:
        """The tokens of a step; returns `text` and `stop`."""

    def finish(self) -> str:
        """The rest of the text."""
