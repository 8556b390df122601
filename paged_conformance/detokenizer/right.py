"""Detokenizers that are right: the oracle, and one that is slow to show anything."""

from typing import Any

from paged_conformance.detokenizer.texts import read_vocabulary
from paged_conformance.detokenizer.words import CAPABILITIES
from reference.text import certain, find_stop, shown


class Oracle:
    """Decodes everything anew with each token."""

    capabilities = frozenset(CAPABILITIES)

    def __init__(self, *, kind: str, pieces: list[str], special: list[int]) -> None:
        self._vocabulary = read_vocabulary(kind, tuple(pieces), frozenset(special))
        self._tokens: list[int] = []
        self._shown = ""
        self._stop: str | None = None
        self._end: int | None = None

    def open(self, **settings: Any) -> None:
        self._settings = settings

    def add(self, *, tokens: list[int], ends: bool) -> dict[str, Any]:
        silent = ends and not self._settings["include_stop"]
        self._tokens += tokens[:-1] if silent else tokens
        texts = self._texts(False)
        found = self._find(texts)
        if found is not None:
            self._stop = found.string
            at = found.start
            self._end = at + len(found.string) if self._settings["include_stop"] else at
            text = texts[-1][: self._end]
        else:
            text = self._safe(texts[-1])
        return {"text": self._new(text), "stop": self._stop}

    def finish(self) -> str:
        return self._new(self._texts(True)[-1][: self._end])

    def _find(self, texts: list[str]) -> Any:
        return find_stop(texts, self._settings["stop"], self._settings["min_tokens"])

    def _safe(self, text: str) -> str:
        return shown(text, self._settings["stop"])

    def _texts(self, over: bool) -> list[str]:
        skip = self._settings["skip_special_tokens"]
        return certain(
            self._vocabulary, self._tokens, skip_special_tokens=skip, behind_prompt=True, over=over
        )

    def _new(self, text: str) -> str:
        new, self._shown = text[len(self._shown) :], text
        return new


class Late(Oracle):
    """Shows nothing before the end."""

    capabilities = Oracle.capabilities - {"eager"}

    def _safe(self, text: str) -> str:
        return ""


RIGHT = (Oracle, Late)
