"""Log-probabilities of tokens, as completions and chats write them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jax_engine.logprobs import Logprob
from jax_engine.serving.openai.responses import (
    ChatLogprobs,
    CompletionLogprobs,
    TokenLogprob,
    TopLogprob,
)
from jax_engine.tokenization.tokenizer import Tokenizer

LEAST = -9999.0  # JSON has no infinity
type Entries = Mapping[int, Logprob] | None


def number(logprob: float) -> float:
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
        found.token_logprobs.append(None if own is None else number(own.logprob))
        found.top_logprobs.append(None if entry is None else _top(entry, token, top, as_ids=as_ids))
    return found


def _top(
    entry: Mapping[int, Logprob], token: int, top: int | None, *, as_ids: bool
) -> dict[str, float]:
    kept = [(i, one) for i, one in entry.items() if top is None or one.rank <= top or i == token]
    found: dict[str, float] = {}
    for i, one in kept:  # several tokens may have one text: the first is the most probable
        found.setdefault(_id(i) if as_ids else _text(i, one), number(one.logprob))
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
        return TopLogprob(shown, number(entry.logprob), _bytes(tokenizer, token, text))

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
                "logprob": number(one.logprob),
                "rank": one.rank,
                "decoded_token": one.decoded_token,
            }
            for token, one in entry.items()
        }
        for entry in entries
    ]
