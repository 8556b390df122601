"""Texts to tokens, where it delays nobody.

Tokenising takes a microsecond for each token, and `Tokenizer.encode` holds the interpreter's lock
meanwhile. So only a short text is tokenised on the event loop. Others go to a thread, which holds
no lock (`encode_batch_fast`): one thread for middling texts, one for long ones, so that nobody
waits behind a long text but another, and the memory that they need is that of one.
"""

import asyncio
import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from jax_engine.core.admission import prompt_too_long
from jax_engine.tokenization.least_tokens import LeastTokens
from jax_engine.tokenization.tokenizer import Tokenizer

SHORT_TEXT = 1024  # characters: half a millisecond
LONG_TEXT = 1 << 16  # characters: 40 milliseconds
# A text of a megabyte takes 150 MB while it is tokenised, which glibc keeps unless it is told to.
GIVE_BACK = 1 << 19  # characters


class TextEncoder:
    """The tokenizer of an event loop.

    Args:
        max_model_len: The longest prompt plus output, in tokens.
    """

    def __init__(self, tokenizer: Tokenizer, max_model_len: int) -> None:
        self._tokenizer, self._max_model_len = tokenizer, max_model_len
        self._middling = ThreadPoolExecutor(1, "texts")
        self._long = ThreadPoolExecutor(1, "long-texts")
        self._least: LeastTokens | None = None

    async def ids(
        self, text: str, *, add_special_tokens: bool = True, any_length: bool = False
    ) -> list[int]:
        """The token ids of a text.

        Args:
            any_length: Whether it may have more tokens than a prompt may have.

        Raises:
            RequestTooLargeError: It has more. If its length alone tells so, it is not tokenised.
        """
        encode = partial(self._ids, text, add_special_tokens, any_length)
        if len(text) <= SHORT_TEXT:
            return encode()
        if not any_length and len(text) >= self._max_model_len:
            await self.beside(self._check_length, text)
        run = asyncio.get_running_loop().run_in_executor
        return await run(self._middling if len(text) <= LONG_TEXT else self._long, encode)

    async def pair_ids(
        self, left: str, right: str, *, add_special_tokens: bool = True, any_length: bool = False
    ) -> list[int]:
        """The token ids of two texts, joined as the tokenizer joins pairs. See `ids`."""
        if not any_length and len(left) + len(right) >= self._max_model_len:
            await self.beside(self._check_length, left)
            await self.beside(self._check_length, right)

        def encode() -> list[int]:
            (found,) = self._tokenizer.backend.encode_batch_fast(
                [(left, right)], add_special_tokens=add_special_tokens
            )
            ids: list[int] = found.ids
            if not any_length:
                self.check_count(len(ids))
            return ids

        run = asyncio.get_running_loop().run_in_executor
        return await run(
            self._long if len(left) + len(right) > LONG_TEXT else self._middling, encode
        )

    async def beside[*Args, T](self, work: Callable[[*Args], T], *args: *Args) -> T:
        """The result of some milliseconds' work in the thread of middling texts."""
        return await asyncio.get_running_loop().run_in_executor(self._middling, work, *args)

    def _ids(self, text: str, add_special_tokens: bool, any_length: bool) -> list[int]:
        if len(text) <= SHORT_TEXT:
            ids = self._tokenizer.encode(text, add_special_tokens=add_special_tokens)
        else:
            ids = self._tokenizer.encode_unlocked(text, add_special_tokens=add_special_tokens)
        if len(text) >= GIVE_BACK:
            _give_back()
        if not any_length:
            self.check_count(len(ids))
        return ids

    def check_count(self, count: int) -> None:
        """Raises RequestTooLargeError for more tokens than a prompt may have."""
        if count > self._max_model_len - 1:
            raise prompt_too_long(count, self._max_model_len)

    def _check_length(self, text: str) -> None:
        if self._least is None:  # 70 ms for 50,000 tokens
            self._least = LeastTokens.of(self._tokenizer.backend)
        least = self._least.of_text(text)
        if least > self._max_model_len - 1:
            raise prompt_too_long(least, self._max_model_len, "at least ")


def _give_back() -> None:
    """Returns free memory to the system, where the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
