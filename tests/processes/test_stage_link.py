"""What a stage hands on: every bit of it, in the order of the steps, and nobody waits for ever."""

import threading
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine.errors import StepFailedError
from jax_engine.processes.stage_link import Folders, StageLink
from tests.support.patience import HANG_S

ABORTED = [False]


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> tuple[StageLink, StageLink]:
    """The links of two stages."""
    before, after = (str(tmp_path_factory.mktemp(name)) for name in ("a", "b"))
    first = StageLink(Folders(before, after), lambda: ABORTED[0], has_before=False)
    last = StageLink(Folders(after), lambda: ABORTED[0], has_before=True)
    assert (first.has_before, first.has_after) == (False, True)
    assert (last.has_before, last.has_after) == (True, False)
    return first, last


EPOCH = iter(range(10**9))


@given(
    shapes=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 5)), min_size=1, max_size=4),
    dtypes=st.tuples(*[st.sampled_from(["float32", "bfloat16", "float16"])] * 2),
    seed=st.integers(0, 2**32 - 1),
)
def test_arrays_come_as_they_were_sent(
    ends: tuple[StageLink, StageLink],
    shapes: list[tuple[int, int]],
    dtypes: tuple[str, str],
    seed: int,
) -> None:
    """Any bits, two arrays a step, and several steps ahead of the one that is awaited."""
    words, epoch = np.random.default_rng(seed), next(EPOCH)

    def drawn(shape: tuple[int, int], name: str) -> np.ndarray:
        dtype = jnp.dtype(name)
        count = shape[0] * shape[1] * dtype.itemsize
        return np.frombuffer(words.bytes(count), np.uint8).view(dtype).reshape(shape)

    steps = [[drawn(shape, name) for name in dtypes] for shape in shapes]
    for number, step in enumerate(steps):
        ends[0].send((epoch, number), step)
    for number, step in enumerate(steps):
        found = ends[1].receive((epoch, number))
        assert [(one.shape, one.dtype) for one in found] == [(one.shape, one.dtype) for one in step]
        assert [one.tobytes() for one in found] == [one.tobytes() for one in step]


def test_what_was_sent_before_a_failure_is_left_out(ends: tuple[StageLink, StageLink]) -> None:
    first, last = ends
    epoch = next(EPOCH)
    for number in (1, 2):
        first.send((epoch, number), [np.zeros((1, 1))])
    later = next(EPOCH)
    first.send((later, 1), [np.ones((1, 1))])
    assert last.receive((later, 1))[0][0, 0] == 1


def test_a_step_that_was_left_out_is_noticed(ends: tuple[StageLink, StageLink]) -> None:
    first, last = ends
    epoch = next(EPOCH)
    first.send((epoch, 2), [np.zeros((1, 1))])
    with pytest.raises(StepFailedError, match="carried out step 2, and this one waits for step 1"):
        last.receive((epoch, 1))


def test_who_waits_goes_on_when_another_has_failed(ends: tuple[StageLink, StageLink]) -> None:
    found: list[Exception] = []

    def wait() -> None:
        try:
            ends[1].receive((next(EPOCH), 1))
        except StepFailedError as error:
            found.append(error)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    time.sleep(0.1)
    assert waiting.is_alive() and not found
    ABORTED[0] = True
    try:
        waiting.join(HANG_S)
    finally:
        ABORTED[0] = False
    assert "another stage" in str(found[0])


def test_a_link_leaves_no_socket_behind_its_folder(tmp_path: Path) -> None:
    link = StageLink(Folders(str(tmp_path)), lambda: True, has_before=True)
    assert [one.name for one in tmp_path.iterdir()] == ["handed"]
    with pytest.raises(StepFailedError):
        link.receive((0, 1))
