"""Log-probabilities of tokens, as completions and chats write them.

Completions also write where the text of each token begins in the whole text. `Offsets` finds that.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jax_engine.outputs import Logprob
from jax_engine.serving.api.endpoint_responses import (
    ChatLogprobs,
    CompletionLogprobs,
    TokenLogprob,
    TopLogprob,
)
from jax_engine.tokenization.detokenizer import IncrementalDetokenizer
from jax_engine.tokenization.tokenizer import Tokenizer

LEAST = -9999.0  # JSON has no infinity
type Entries = Mapping[int, Logprob] | None


def finite(logprob: float) -> float:
    """A log-probability that JSON can say."""
    return max(logprob, LEAST)


def completion_logprobs(
    tokenizer: Tokenizer,
    token_ids: Sequence[int],
    entries: Sequence[Entries],
    offsets: Sequence[int],
    top: int | None,
    *,
    as_ids: bool,
) -> CompletionLogprobs:
    """
    Args:
        entries: None for a prompt's first token, which nothing is before.
        offsets: where each token's text begins.
        top: how many of the most probable tokens, and the token itself; None: all of an entry's.
        as_ids: whether tokens are written as `token_id:5`.
    """
    found = CompletionLogprobs(list(offsets[: len(entries)]), [], [], [])
    for token, entry in zip(token_ids, entries, strict=False):
        own = None if entry is None else entry[token]
        text = tokenizer.decode([token], skip_special_tokens=False)
        found.tokens.append(_id(token) if as_ids else text)
        found.token_logprobs.append(None if own is None else finite(own.logprob))
        found.top_logprobs.append(None if entry is None else _top(entry, token, top, as_ids=as_ids))
    return found


def _top(
    entry: Mapping[int, Logprob], token: int, top: int | None, *, as_ids: bool
) -> dict[str, float]:
    kept = [(i, one) for i, one in entry.items() if top is None or one.rank <= top or i == token]
    found: dict[str, float] = {}
    for i, one in kept:  # several tokens may have one text: the first is the most probable
        found.setdefault(_id(i) if as_ids else _text(i, one), finite(one.logprob))
    return found


def _text(token: int, entry: Logprob) -> str:
    return _id(token) if entry.decoded_token is None else entry.decoded_token


def _id(token: int) -> str:
    return f"token_id:{token}"


def chat_logprobs(
    tokenizer: Tokenizer,
    token_ids: Sequence[int],
    entries: Iterable[Entries],
    top: int | None,
    *,
    as_ids: bool = False,
) -> ChatLogprobs:
    """As `completion_logprobs`, in the form of chats. `bytes` are always the token's own."""

    def one(token: int, entry: Logprob) -> TopLogprob:
        text = _text(token, entry)
        shown = _id(token) if as_ids else text
        return TopLogprob(shown, finite(entry.logprob), _bytes(tokenizer, token, text))

    content = []
    for token, entry in zip(token_ids, entries, strict=False):
        assert entry is not None
        own = one(token, entry[token])
        ranked = sorted(entry.items(), key=lambda pair: pair[1].rank)[:top]
        tops = [one(*pair) for pair in ranked]
        content.append(TokenLogprob(own.token, own.logprob, own.bytes, tops))
    return ChatLogprobs(content)


def _bytes(tokenizer: Tokenizer, token: int, text: str) -> list[int]:
    table = tokenizer.token_bytes
    return list(text.encode() if table is None else table[token])


def prompt_logprobs(entries: Iterable[Entries] | None) -> list[dict[str, Any] | None] | None:
    """Log-probabilities of a prompt, by token id, as vLLM writes them."""
    if entries is None:
        return None
    return [
        None
        if entry is None
        else {
            str(token): {
                "logprob": finite(one.logprob),
                "rank": one.rank,
                "decoded_token": one.decoded_token,
            }
            for token, one in entry.items()
        }
        for entry in entries
    ]


class Offsets:
    """Counts the letters of one choice, token by token, as they become text.

    A token without text of its own, such as a hidden special token, begins where the next one does.
    So do all tokens of one letter.
    """

    def __init__(
        self, tokenizer: Tokenizer, prompt_ids: Sequence[int], *, skip_special_tokens: bool
    ) -> None:
        self._tokenizer, self._prompt_ids = tokenizer, prompt_ids
        self._stream = IncrementalDetokenizer(
            tokenizer, prompt_ids, skip_special_tokens=skip_special_tokens
        )
        self._at = 0

    def of_prompt(self, text: str) -> list[int]:
        """Those of the prompt's tokens, whose text stands before the output.

        Special tokens that the text does not have, such as BOS, have no length.
        """
        stream = IncrementalDetokenizer(self._tokenizer, skip_special_tokens=False)
        found, at = [], 0
        for token in self._prompt_ids:
            found.append(at)
            if self._tokenizer.is_special(token):
                own = self._tokenizer.decode([token], skip_special_tokens=False)
                if not text.startswith(own, at):
                    continue
            at = min(at + len(stream.add([token])), len(text))
        self._at = len(text)
        return found

    def of_output(self, token_ids: Sequence[int]) -> list[int]:
        """Those of new tokens of the output."""
        found = []
        for token in token_ids:
            found.append(self._at)
            self._at += len(self._stream.add([token]))
        return found
