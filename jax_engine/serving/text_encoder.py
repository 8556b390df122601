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
from jax_engine.engine.requests.prompts import TextLength
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
        self._middling, self._long = _threads()
        self._length = TextLength(tokenizer, max_model_len)

    async def ids(
        self,
        text: str,
        *,
        add_special_tokens: bool = True,
        any_length: bool = False,
        room: int = 1,
    ) -> list[int]:
        """The token ids of a text.

        Args:
            any_length: Whether it may have more tokens than a prompt may have.
            room: The tokens of output that must fit, too; 0 for a prompt that is pooled.

        Raises:
            RequestTooLargeError: It has more. If its length alone tells so, it is not tokenised.
        """
        encode = partial(self._ids, text, add_special_tokens, None if any_length else room)
        if len(text) <= SHORT_TEXT:
            return encode()
        if not any_length and len(text) >= self._max_model_len:
            await self.beside(self._length.check, text, room)
        return await self._apart(len(text), encode)

    async def first_ids(self, text: str, count: int) -> list[int]:
        """The token ids that a text begins with, at most `count`, none of them added to it."""
        if len(text) > SHORT_TEXT:
            text = await self.beside(self._length.beginning, text, count)
        return (await self.ids(text, add_special_tokens=False, any_length=True))[:count]

    async def pair_ids(
        self, left: str, right: str, *, add_special_tokens: bool = True, any_length: bool = False
    ) -> tuple[list[int], list[int]]:
        """The token ids of two texts, joined as the tokenizer joins pairs, and the tokens' types,
        for a prompt that is pooled. See `ids`."""
        if not any_length and len(left) + len(right) >= self._max_model_len:
            await self.beside(self._length.check, left, 0)
            await self.beside(self._length.check, right, 0)

        def encode() -> tuple[list[int], list[int]]:
            (found,) = self._tokenizer.backend.encode_batch_fast(
                [(left, right)], add_special_tokens=add_special_tokens
            )
            ids: list[int] = found.ids
            if not any_length:
                self._check_count(len(ids), 0)
            return ids, found.type_ids

        return await self._apart(len(left) + len(right), encode)

    async def cut(self, text: str, count: int) -> str:
        """The beginning of a text with its first tokens, `count` at most, none of them special.

        A character is whole or left out.
        """

        def first() -> str:
            encode = self._tokenizer.backend.encode_batch
            places = encode([text], add_special_tokens=False)[0].offsets
            if len(places) <= count:
                return text
            # The bytes of one character may be several tokens, all of which have its place.
            return text[: min(places[count - 1][1], places[count][0])]

        return await self._apart(len(text), first)

    def close(self) -> None:
        """Ends the threads, once they have done what they were given. Later texts begin others."""
        ending = self._middling, self._long
        self._middling, self._long = _threads()
        for pool in ending:
            pool.shutdown()

    async def _apart[T](self, size: int, work: Callable[[], T]) -> T:
        """The result of work on a text of this size, in the thread of those."""
        pool = self._middling if size <= LONG_TEXT else self._long
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    async def beside[*Args, T](self, work: Callable[[*Args], T], *args: *Args) -> T:
        """The result of some milliseconds' work in the thread of middling texts."""
        return await asyncio.get_running_loop().run_in_executor(self._middling, work, *args)

    def _ids(self, text: str, add_special_tokens: bool, room: int | None) -> list[int]:
        if len(text) <= SHORT_TEXT:
            ids = self._tokenizer.encode(text, add_special_tokens=add_special_tokens)
        else:
            ids = self._tokenizer.encode_unlocked(text, add_special_tokens=add_special_tokens)
        if len(text) >= GIVE_BACK:
            _give_back()
        if room is not None:
            self._check_count(len(ids), room)
        return ids

    def _check_count(self, count: int, room: int) -> None:
        if count > self._max_model_len - room:
            raise prompt_too_long(count, self._max_model_len, room)


def _threads() -> tuple[ThreadPoolExecutor, ThreadPoolExecutor]:
    """The thread of middling texts and that of long ones; neither begins before its first text."""
    return ThreadPoolExecutor(1, "texts"), ThreadPoolExecutor(1, "long-texts")


def _give_back() -> None:
    """Returns free memory to the system, where the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
