"""This engine's detokenizer and stop checker as a target."""

from typing import Any

from paged_conformance.adapters.tiny_tokenizers import backend
from paged_conformance.detokenizer.words import CAPABILITIES


class Own:
    """It can do all that a detokenizer may."""

    capabilities = frozenset(CAPABILITIES)

    def __init__(self, *, kind: str, pieces: list[str], special: list[int]) -> None:
        from jax_engine.tokenization.tokenizer import Tokenizer

        self._tokenizer = Tokenizer(backend(kind, pieces, special))

    def open(
        self,
        *,
        prompt: list[int],
        stop: list[str],
        include_stop: bool,
        min_tokens: int,
        skip_special_tokens: bool,
    ) -> None:
        from jax_engine.tokenization.detokenizer import IncrementalDetokenizer, StopChecker

        self._stream = IncrementalDetokenizer(
            self._tokenizer, prompt, skip_special_tokens=skip_special_tokens
        )
        self._checker = StopChecker(stop, include_stop)
        self._num_left, self._include, self._stopped = min_tokens, include_stop, False

    def add(self, *, tokens: list[int], ends: bool) -> dict[str, Any]:
        text = ""
        for token in tokens[:-1] if ends and not self._include else tokens:
            self._num_left -= 1
            new = self._stream.add([token])
            new, stop = self._checker.add(new, may_end=self._num_left < 0)
            text += new
            if stop is not None:
                self._stopped = True
                return {"text": text, "stop": stop}
        return {"text": text, "stop": None}

    def finish(self) -> str:
        if self._stopped:
            return ""
        text, _ = self._checker.add(self._stream.flush(), may_end=False)
        return text + self._checker.flush()


detokenizer = Own
