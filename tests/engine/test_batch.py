"""All prompts of a call are checked before one starts; the bar shows prompts and tokens."""

from types import SimpleNamespace
from typing import Any

import pytest

from jax_engine import InvalidRequestError, RequestOutput, SamplingParams
from jax_engine.engine import calls
from jax_engine.engine.calls import check_all, progress_bar
from jax_engine.engine.requests.request import refuse_images
from jax_engine.outputs import CompletionOutput, PoolingOutput, PoolingRequestOutput
from tests.support.builders import small_engine


class Bar:
    """What a call makes of its bar."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.postfix = ""
        self.updates: list[int] = []
        self.closed = False

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def update(self, count: int) -> None:
        self.updates.append(count)


def test_the_bar_counts_requests_and_says_how_fast_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tokens a second since the bar began, of prompts and of all samples."""
    now = SimpleNamespace(monotonic=lambda: times.pop(0))
    times = [10.0, 10.0, 12.0, 14.0]  # the first request ends at once: no division by zero
    monkeypatch.setattr(calls, "time", now)
    outputs = [CompletionOutput(0, "", [1, 2]), CompletionOutput(1, "", [1, 2, 3])]
    texts = []
    bars: list[Bar] = []
    with progress_bar(3, lambda **options: bars.append(Bar(**options)) or bars[0]) as show:
        (bar,) = bars
        for i in range(2):
            show(RequestOutput(str(i), None, [1] * 4, outputs, finished=True))
            texts.append(bar.postfix)
        show(PoolingRequestOutput("2", PoolingOutput(None), [1] * 4, finished=True))  # type: ignore[arg-type]
        texts.append(bar.postfix)
    assert bar.options == {"total": 3, "desc": "Processed prompts", "dynamic_ncols": True}
    assert bar.updates == [1, 1, 1] and bar.closed
    assert texts == [
        "est. speed input: 4000000000.00 toks/s, output: 5000000000.00 toks/s",
        "est. speed input: 4.00 toks/s, output: 5.00 toks/s",
        "est. speed input: 3.00 toks/s, output: 2.50 toks/s",
    ]


def test_what_there_is_not_is_refused() -> None:
    refuse_images(None)
    refuse_images({})
    with pytest.raises(InvalidRequestError, match="mm_processor_kwargs must be None"):
        refuse_images({"num_crops": 4})


def test_what_is_right_can_be_added() -> None:
    prompts = [[0, 1], [1]]
    params = [SamplingParams(), SamplingParams(max_tokens=3)]
    checked = check_all(small_engine(policy="priority"), prompts, params, [5, -1], [None, 9.0])
    assert [(one.group.priority, one.timeout) for one in checked] == [(5, None), (-1, 9.0)]
    assert [one.prompt.token_ids for one in checked] == prompts
    assert [one.params.max_tokens for one in checked] == [16, 3]


@pytest.mark.parametrize(
    ("count", "wrong", "rest"),
    [
        (1, [0], ""),
        (2, [1], "; none of the 2 prompts was started"),
        (6, [0, 1, 3, 4, 5], "; none of the 6 prompts was started"),
        (9, [1, 2, 4, 5, 6, 7, 8], "; and 2 more; none of the 9 prompts was started"),
    ],
)
def test_the_first_five_wrong_prompts_are_named(count: int, wrong: list[int], rest: str) -> None:
    prompts = [[9] if i in wrong else [1] for i in range(count)]
    with pytest.raises(InvalidRequestError) as raised:
        check_all(small_engine(), prompts, [SamplingParams()] * count, [0] * count, [None] * count)
    one = "prompt_token_ids[0] must be in [0, 2], got 9"
    assert str(raised.value) == "; ".join(f"prompts[{i}]: {one}" for i in wrong[:5]) + rest
