"""Swap space in pieces: made when needed, and done without where the system has no memory."""

import numpy as np
import pytest

from jax_engine.errors import OutOfMemoryError
from jax_engine.worker import kv_cache
from jax_engine.worker.kv_cache import HostBlocks

SHAPE = (2, 2, 1, 4, 8)
BLOCK_BYTES = 2 * 2 * 4 * 8 * 4


@pytest.fixture
def three_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_cache, "PIECE_BYTES", 3 * BLOCK_BYTES + 5)


def test_a_piece_holds_a_block_however_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_cache, "PIECE_BYTES", 5)
    host = HostBlocks(10, SHAPE, np.dtype(np.float32))
    assert host.make_room([4, 7]) and host.num_bytes == 2 * BLOCK_BYTES


def test_each_new_piece_must_fit_beside_what_stays_free(
    three_a_piece: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(kv_cache, "check_fits", lambda what, size: asked.append(size))
    HostBlocks(10, SHAPE, np.dtype(np.float32)).make_room([0, 2, 3])
    assert asked == 2 * [3 * BLOCK_BYTES + kv_cache.HEADROOM_BYTES]


def no_memory(what: str, num_bytes: int) -> None:
    raise OutOfMemoryError(f"{what} need {num_bytes}.")


def test_pieces_are_made_when_a_block_of_them_is_written(three_a_piece: None) -> None:
    host = HostBlocks(10, SHAPE, np.dtype(np.float32))
    assert (len(host), host.num_bytes) == (10, 0)
    values = np.random.default_rng(0).random((3, *SHAPE)).astype(np.float32)
    host.write([9, 0, 1], values)
    assert host.num_bytes == 2 * 3 * BLOCK_BYTES
    np.testing.assert_array_equal(host.read([1, 9, 0]), values[[2, 0, 1]])
    assert host.make_room([0, 1, 2, 9]) and host.num_bytes == 2 * 3 * BLOCK_BYTES


def test_no_memory_for_a_piece(
    three_a_piece: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    host = HostBlocks(10, SHAPE, np.dtype(np.float32))
    host.write([0], np.ones((1, *SHAPE), np.float32))
    monkeypatch.setattr(kv_cache, "check_fits", no_memory)
    assert host.make_room([0, 1, 2])
    assert not host.make_room([2, 3]) and not host.make_room([9])
    assert caplog.text.count("computed again") == 1
    with pytest.raises(OutOfMemoryError):
        host.write([3], np.ones((1, *SHAPE), np.float32))
    np.testing.assert_array_equal(host.read([0]), np.ones((1, *SHAPE), np.float32))
