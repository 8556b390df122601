"""Where the ends of one call's requests wait: only those it expects, in the order it gave."""

from typing import Any

import pytest

from jax_engine import StepFailedError
from jax_engine.engine.mailbox import Mailbox
from jax_engine.outputs import PoolingOutput, PoolingRequestOutput


def output(request_id: str) -> PoolingRequestOutput:
    nothing: Any = None
    return PoolingRequestOutput(request_id, PoolingOutput(nothing), [], finished=True)


def test_outputs_in_the_order_of_the_requests() -> None:
    box = Mailbox()
    box.expect(["a", "b"])
    box.expect(["c"])
    for one in "cab":
        box.put(output(one))
    assert [one.request_id for one in box.take(wait=False)] == ["c", "a", "b"]
    assert not box.missing and box.take(wait=False) == []
    assert [one.request_id for one in box.outputs()] == ["a", "b", "c"]


def test_what_was_not_accepted_is_not_waited_for() -> None:
    """And what comes of it is nobody's."""
    box = Mailbox()
    box.expect(["a"])
    box.expect(["b", "c"])
    box.forget(["b", "c", "never"])
    assert (box.request_ids, box.missing) == (["a"], {"a"})
    box.put(output("b"))
    box.put(output("a"))
    assert [one.request_id for one in box.take(wait=True)] == ["a"]
    assert [one.request_id for one in box.outputs()] == ["a"]


def test_a_waiting_call_is_woken_and_told_of_failures() -> None:
    box = Mailbox()
    box.expect(["a"])
    box.wake()
    assert box.take(wait=True) == [] and box.missing == {"a"}
    box.fail(RuntimeError("no memory"))
    with pytest.raises(StepFailedError, match=r"a step failed.*no memory"):
        box.take(wait=True)
