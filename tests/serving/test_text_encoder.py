"""Texts become tokens beside the event loop; those that cannot fit do not."""

import asyncio
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jax_engine import RequestTooLargeError
from jax_engine.serving import text_encoder
from jax_engine.serving.text_encoder import LONG_TEXT, SHORT_TEXT, TextEncoder
from jax_engine.tokenization.tokenizer import Tokenizer, load_tokenizer
from tests.support.patience import HANG_S

SIZES = [0, 1, SHORT_TEXT, SHORT_TEXT + 1, LONG_TEXT, LONG_TEXT + 1, text_encoder.GIVE_BACK]


@pytest.fixture(scope="module")
def tokenizer(checkpoint: Path) -> Tokenizer:
    return load_tokenizer(checkpoint)


class Slow:
    """A tokenizer whose long texts wait for `go`.

    Attributes:
        tokenised: the lengths of the texts, and the threads that tokenised them.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer, self.backend = tokenizer, tokenizer.backend
        self.go, self.begun = threading.Event(), threading.Event()
        self.tokenised: list[tuple[int, str]] = []

    def encode(self, text: str, **options: Any) -> list[int]:
        self.tokenised.append((len(text), threading.current_thread().name))
        return self._tokenizer.encode(text, **options)

    def encode_unlocked(self, text: str, **options: Any) -> list[int]:
        if len(text) > LONG_TEXT:
            self.begun.set()
            assert self.go.wait(HANG_S)
        return self.encode(text, **options)


@pytest.mark.parametrize("size", SIZES)
def test_ids_are_those_of_the_tokenizer(tokenizer: Tokenizer, size: int) -> None:
    text = ("one, é <|end|>\n" * size)[:size]
    found = asyncio.run(TextEncoder(tokenizer, size + 2).ids(text))
    assert found == tokenizer.encode(text) == tokenizer.encode_unlocked(text)


def test_a_long_text_delays_nobody(tokenizer: Tokenizer) -> None:
    """Short texts, middling ones and the event loop go on while a long one is tokenised."""
    slow = Slow(tokenizer)
    encoder = TextEncoder(slow, 1 << 20)  # type: ignore[arg-type]

    async def run() -> None:
        long = asyncio.ensure_future(encoder.ids("x" * (LONG_TEXT + 1)))
        other = asyncio.ensure_future(encoder.ids("y" * (LONG_TEXT + 2)))
        while not slow.begun.is_set():
            await asyncio.sleep(0.001)
        assert len(await encoder.ids("x")) == 1
        assert len(await encoder.ids("x" * LONG_TEXT)) == LONG_TEXT
        assert not long.done()
        other.cancel()  # its client has left before it began
        slow.go.set()
        assert len(await long) == LONG_TEXT + 1

    asyncio.run(run())
    assert [size for size, _ in slow.tokenised] == [1, LONG_TEXT, LONG_TEXT + 1]
    here = threading.current_thread().name
    assert [name == here for _, name in slow.tokenised] == [True, False, False]


def test_what_cannot_fit_is_not_tokenised(tokenizer: Tokenizer) -> None:
    """A token of this tokenizer is 7 bytes long, at most: `<|end|>`."""
    slow = Slow(tokenizer)
    slow.go.set()
    encoder = TextEncoder(slow, 1000)  # type: ignore[arg-type]
    limit = 7 * 999
    with pytest.raises(RequestTooLargeError, match="has at least 1000 tokens, max_model_len 1000 "):
        asyncio.run(encoder.ids("x" * (limit + 1)))
    assert not slow.tokenised
    fits = asyncio.run(encoder.ids("<|end|>" * 999))
    assert len(fits) == 999
    for size in (1000, limit):
        with pytest.raises(RequestTooLargeError, match=f"the prompt has {size} tokens"):
            asyncio.run(encoder.ids("x" * size))
    assert len(asyncio.run(encoder.ids("x" * (limit + 1), any_length=True))) == limit + 1


def test_other_threads_go_on_meanwhile(tokenizer: Tokenizer) -> None:
    turns, ended = [0], threading.Event()

    def count() -> None:
        while not ended.is_set():
            time.sleep(0.0005)
            turns[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    tokenizer.encode_unlocked("x" * 2_000_000)
    ended.set()
    thread.join()
    assert turns[0] > 20, turns


class Untouched:
    """A tokenizer's backend that says what it knows, and encodes nothing."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def encode_batch_fast(self, pairs: Any, **options: Any) -> Any:
        raise AssertionError("tokenised")


def test_a_pair_that_cannot_fit_is_not_tokenised(tokenizer: Tokenizer) -> None:
    """Whichever of the two is too long; one that may fit is tokenised, and counted."""
    untouched: Any = SimpleNamespace(backend=Untouched(tokenizer.backend))
    for pair in (("x" * 400, ""), ("", "x" * 400), ("x" * 400, "x" * 400)):
        with pytest.raises(RequestTooLargeError, match="at least "):
            asyncio.run(TextEncoder(untouched, 20).pair_ids(*pair))
        with pytest.raises(AssertionError, match="tokenised"):
            asyncio.run(TextEncoder(untouched, 20).pair_ids(*pair, any_length=True))
    ids, types = asyncio.run(TextEncoder(tokenizer, 20).pair_ids("x" * 10, "y" * 10))
    assert len(ids) == 20 and types == [0] * 20  # bytes have no types
    with pytest.raises(RequestTooLargeError, match="has 21 tokens"):
        asyncio.run(TextEncoder(tokenizer, 20).pair_ids("x" * 10, "y" * 11))
    whole = asyncio.run(TextEncoder(tokenizer, 20).pair_ids("x" * 10, "y" * 11, any_length=True))
    assert list(map(len, whole)) == [21, 21]


@given(text=st.text(max_size=12), count=st.integers(1, 20))
@example(text="é€😀", count=2)
@example(text="é€😀", count=4)
def test_a_cut_keeps_whole_characters(tokenizer: Tokenizer, text: str, count: int) -> None:
    """A token of this tokenizer is a byte."""
    found = asyncio.run(TextEncoder(tokenizer, 9).cut(text, count))
    assert found == text.encode()[:count].decode(errors="ignore")


@pytest.mark.slow
def test_a_text_of_any_length_is_cut(tokenizer: Tokenizer) -> None:
    encoder = TextEncoder(tokenizer, 9)
    for size in SIZES:
        assert asyncio.run(encoder.cut("<|end|>ab" * size, 4)) == ("<|end|>ab" * size)[:16]


@pytest.mark.parametrize("count", [1, 5, SHORT_TEXT, 3000])
@pytest.mark.parametrize("size", [0, 3, SHORT_TEXT + 1, 1_000_000])
def test_a_beginning_is_tokenised_no_further_than_it_must(
    tokenizer: Tokenizer, size: int, count: int
) -> None:
    """A token is of 7 bytes at most, "<|end|>", which is the first one here."""
    text = ("<|end|>" + "ab" * size)[: size and None]
    slow = Slow(tokenizer)
    slow.go.set()
    encoder = TextEncoder(slow, 100)  # type: ignore[arg-type]
    found = asyncio.run(asyncio.wait_for(encoder.first_ids(text, count), HANG_S))
    assert found == tokenizer.encode(text, add_special_tokens=False)[:count]
    [(length, _)] = slow.tokenised
    assert length <= max(SHORT_TEXT, 7 * count)


def test_the_threads_end_and_later_texts_begin_others(tokenizer: Tokenizer) -> None:
    encoder, before = TextEncoder(tokenizer, 1 << 20), set(threading.enumerate())

    async def both() -> list[list[int]]:
        return await asyncio.gather(*(encoder.ids("x" * size) for size in (2000, LONG_TEXT + 1)))

    for _ in range(2):
        assert [len(ids) for ids in asyncio.run(both())] == [2000, LONG_TEXT + 1]
        assert len(set(threading.enumerate()) - before) == 2
        encoder.close()
        assert not set(threading.enumerate()) - before


def test_a_text_that_is_being_tokenised_when_the_threads_end_is_tokenised(
    tokenizer: Tokenizer,
) -> None:
    slow = Slow(tokenizer)
    encoder = TextEncoder(slow, 1 << 20)  # type: ignore[arg-type]

    async def ends() -> list[int]:
        ids = asyncio.ensure_future(encoder.ids("x" * (LONG_TEXT + 1)))
        assert await asyncio.to_thread(slow.begun.wait, HANG_S)
        threading.Timer(0.01, slow.go.set).start()
        encoder.close()
        return await ids

    assert len(asyncio.run(asyncio.wait_for(ends(), HANG_S))) == LONG_TEXT + 1
