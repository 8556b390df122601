"""Stop strings in streamed text, across the boundaries of tokens."""

from collections.abc import Sequence


class StopChecker:
    """Finds the first stop string to be completed in a stream of text.

    Text that may begin a stop string is held back, so the returned text never shows a part of one.
    If one character completes several strings, the longest counts: the result does not depend on
    how the text was split. The work is proportional to the new text.

    Args:
        stop: non-empty strings.
        include_stop_str: whether the stop string itself belongs to the text.
    """

    def __init__(self, stop: Sequence[str], include_stop_str: bool = False):
        self._stops = list(stop)
        self._include = include_stop_str
        self._longest = max((len(one) for one in self._stops), default=0)
        self._held = ""

    def add(self, text: str, *, may_end: bool = True) -> tuple[str, str | None]:
        """Returns the text that is safe to show, and the stop string found in or after it, if any.

        Do not call it again after a stop string was found.

        Args:
            may_end: Whether a stop string that this text completes counts. One that it only begins
                still counts if later text completes it.
        """
        old = len(self._held)
        text = self._held + text
        places = [(text.find(one, max(0, old + 1 - len(one))), one) for one in self._stops]
        found = [(start + len(one), start, one) for start, one in places if start >= 0]
        if found and may_end:
            end, start, stop = min(found)
            self._held = ""
            return text[: end if self._include else start], stop
        safe = len(text) - self._num_held(text)
        self._held = text[safe:]
        return text[:safe], None

    def flush(self) -> str:
        """Returns the text held back, at the end of a text without a stop string."""
        held, self._held = self._held, ""
        return held

    def _num_held(self, text: str) -> int:
        """Length of the longest end of `text` that is a proper prefix of a stop string."""
        for start in range(max(0, len(text) - self._longest + 1), len(text)):
            end = text[start:]
            if any(one.startswith(end) and one != end for one in self._stops):
                return len(end)
        return 0
