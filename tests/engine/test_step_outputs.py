"""From a step's rows to the requests that they belong to."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from jax_engine.core.scheduler_output import SchedulerOutput
from jax_engine.engine.pipeline import take_prompts
from jax_engine.step import StepResult


@pytest.mark.parametrize("found", ["prompt", "hidden"])
def test_each_request_is_told_where_its_rows_are(found: str) -> None:
    """One of the requests ended after the step was planned, and is no longer known."""
    calls: list[Any] = []

    def note(*call: Any) -> None:
        calls.append(call)

    requests: Any = {
        name: SimpleNamespace(results=SimpleNamespace(take_prompt=partial(note, name)))
        for name in ("b", "c")
    }
    items: list[Any] = [
        SimpleNamespace(
            seq=SimpleNamespace(finish_reason=reason),
            group=SimpleNamespace(request_id=name),
            num_tokens=size,
        )
        for name, size, reason in [("a", 3, "abort"), ("b", 5, None), ("c", 1, None)]
    ]
    nothing: Any = object()
    result = StepResult([], **{found: nothing})
    take_prompts(requests, SchedulerOutput(items), result)
    assert calls == [("b", items[1], 1, 3, result), ("c", items[2], 2, 8, result)]
