"""Detokenizers that are wrong, each in one way, and the property that catches it."""

from typing import Any

from paged_conformance.detokenizer.right import Oracle


class ShowsHalfCharacters(Oracle):
    """An unfinished character is shown as U+FFFD, and again when it is whole."""

    def _texts(self, over: bool) -> list[str]:
        return super()._texts(True)


class LeaksStops(Oracle):
    """What may become a stop string is shown at once."""

    def _safe(self, text: str) -> str:
        return text


class StopsInsideOneTokenOnly(Oracle):
    """A stop string that two tokens share is not seen."""

    def _find(self, texts: list[str]) -> Any:
        found = super()._find(texts)
        before = len(texts[found.num_tokens - 1]) if found else 0
        return found if found is not None and found.start >= before else None


class ForgetsMinTokens(Oracle):
    """The first tokens can stop the output, whatever min_tokens says."""

    def open(self, **settings: Any) -> None:
        super().open(**{**settings, "min_tokens": 0})


class IncludesAlways(Oracle):
    """The stop string belongs to the text, though it should not."""

    def add(self, *, tokens: list[int], ends: bool) -> dict[str, Any]:
        told = super().add(tokens=tokens, ends=ends)
        if told["stop"] is not None and not self._settings["include_stop"]:
            told["text"] += told["stop"]
        return told


class ShowsStopTokens(Oracle):
    """The text of a stop token is shown."""

    def add(self, *, tokens: list[int], ends: bool) -> dict[str, Any]:
        return super().add(tokens=tokens, ends=False)


class ShowsSpecialTokens(Oracle):
    """Special tokens are never skipped."""

    def open(self, **settings: Any) -> None:
        super().open(**{**settings, "skip_special_tokens": False})


class LooksAtTheLastTokenOnly(Oracle):
    """Stop strings are looked for in the text of the last of several tokens alone."""

    def _find(self, texts: list[str]) -> Any:
        found = super()._find(texts)
        return found if found is not None and found.num_tokens == len(texts) - 1 else None


class KeepsTheHeldBack(Oracle):
    """What is held back is never shown, even if nothing comes of it."""

    def finish(self) -> str:
        return ""


class HoldsOneTooMany(Oracle):
    """One more character is held back than may become a stop string."""

    def _safe(self, text: str) -> str:
        return super()._safe(text)[:-1] if self._settings["stop"] else text


WRONG: dict[type[Oracle], str] = {
    ShowsHalfCharacters: "never-taken-back",
    LeaksStops: "whole-text",
    StopsInsideOneTokenOnly: "whole-text",
    ForgetsMinTokens: "whole-text",
    IncludesAlways: "whole-text",
    ShowsStopTokens: "whole-text",
    ShowsSpecialTokens: "whole-text",
    LooksAtTheLastTokenOnly: "equal-at-every-cut",
    KeepsTheHeldBack: "whole-text",
    HoldsOneTooMany: "shown-in-time",
}
