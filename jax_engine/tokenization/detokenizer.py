"""Incremental detokenisation (2023 slides, optimisation 1): constant work per token.

Text is returned when it is final: a character whose bytes are spread over several tokens appears
with the last one, never as a U+FFFD that changes later. Stop strings are found in the streamed
text, across the boundaries of tokens.
"""

import codecs
from collections.abc import Sequence
from typing import Protocol

from jax_engine.tokenization.token_bytes import TokenBytes
from jax_engine.tokenization.tokenizer import Tokenizer


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


_CONTEXT = 6  # tokens before the output that may affect the text of its first one


class _Stream(Protocol):
    def add(self, token_ids: Sequence[int]) -> str: ...

    def flush(self) -> str: ...


class IncrementalDetokenizer:
    """Text of one output sequence as its tokens arrive.

    The results of `add` and `flush`, concatenated, are `tokenizer.decode` of the output. After a
    prompt, the space before a first word stays (decoding the output alone may drop it).

    Args:
        prompt_ids: the tokens before the output; their text is not returned.
        skip_special_tokens: leave out special tokens, such as end of text.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_ids: Sequence[int] = (),
        *,
        skip_special_tokens: bool = True,
    ):
        hidden = tokenizer.special_ids if skip_special_tokens else frozenset()
        table = tokenizer.token_bytes
        self._stream: _Stream = (
            _WindowStream(tokenizer, prompt_ids, skip_special_tokens)
            if table is None
            else _ByteStream(table, hidden, at_start=not prompt_ids)
        )

    def add(self, token_ids: Sequence[int]) -> str:
        """The text that became final with these tokens, possibly empty."""
        return self._stream.add(token_ids)

    def flush(self) -> str:
        """The remaining text, at the end: an unfinished character becomes U+FFFD."""
        return self._stream.flush()


class _ByteStream:
    """Passes the bytes of each token through an incremental UTF-8 decoder."""

    def __init__(self, table: TokenBytes, hidden: frozenset[int], at_start: bool):
        self._table = table
        self._hidden = hidden
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._strip = at_start and table.strips_first_space

    def add(self, token_ids: Sequence[int]) -> str:
        table, hidden = self._table, self._hidden
        data = b"".join([table[token] for token in token_ids if token not in hidden])
        text = self._decoder.decode(data)
        held = self._decoder.getstate()[0]
        if held[:1] == b"\xed" and held[1:] >= b"\xa0":  # Python waits for half of a surrogate pair
            text += self._decoder.decode(b"", final=True)
        return self._stripped(text)

    def flush(self) -> str:
        return self._stripped(self._decoder.decode(b"", final=True))

    def _stripped(self, text: str) -> str:
        if self._strip and text:
            self._strip = False
            return text.removeprefix(" ")
        return text


class _WindowStream:
    """For other tokenizers: decodes a short window twice, with and without the new token.

    The window starts a little before the last text returned, since a token's text may differ at
    the beginning. It grows only while text is held back.
    """

    def __init__(self, tokenizer: Tokenizer, prompt_ids: Sequence[int], skip_special: bool):
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._window = list(prompt_ids[-_CONTEXT:])
        self._num_read = len(self._window)
        self._read_text = self._decode(self._window)

    def add(self, token_ids: Sequence[int]) -> str:
        return "".join([self._add_one(token) for token in token_ids])

    def flush(self) -> str:
        return self._decode(self._window)[len(self._read_text) :]

    def _add_one(self, token: int) -> str:
        self._window.append(token)
        text = self._decode(self._window)
        if text.endswith("\ufffd") or len(text) <= len(self._read_text):
            return ""
        new = text[len(self._read_text) :]
        self._window = self._window[self._num_read :]
        self._num_read = len(self._window)
        self._read_text = self._decode(self._window)
        return new

    def _decode(self, token_ids: Sequence[int]) -> str:
        return self._tokenizer.decode(token_ids, skip_special_tokens=self._skip_special)
