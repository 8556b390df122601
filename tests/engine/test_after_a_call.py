"""Whoever has the end of a call may use the engine at once, though its loop has not left it yet."""

import threading
from typing import Any

import pytest

from jax_engine import EngineInUseError, RequestOutputKind, SamplingParams
from jax_engine.engine.calls import Call, Calls
from tests.support.patience import HANG_S
from tests.support.small_engine import small_engine

FINAL_ONLY = RequestOutputKind.FINAL_ONLY


def test_the_engine_is_free_when_a_call_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, take = small_engine(), Call.take
    calls, leaves, refused = Calls(engine), threading.Event(), list[Any]()

    def slow(call: Call, outputs: list[Any]) -> None:
        """Tells of the end, and is slow to leave the engine."""
        take(call, outputs)
        leaves.wait(HANG_S)

    def step(original: Any = engine.run_step) -> None:
        def look() -> None:
            with pytest.raises(EngineInUseError):
                engine.stats()
            refused.append(True)

        if not refused:
            other = threading.Thread(target=look)
            other.start()
            other.join(HANG_S)
        original()

    engine.run_step = step  # type: ignore[method-assign]
    monkeypatch.setattr(Call, "take", slow)
    request = engine.check_request(
        "AB", SamplingParams(max_tokens=3, ignore_eos=True, output_kind=FINAL_ONLY)
    )
    calls.run([request], use_tqdm=False)
    timer = threading.Timer(0.2, leaves.set)
    timer.start()
    assert engine.stats().num_running == 0 and refused == [True]
    assert leaves.is_set(), "the loop was waited for"
    timer.join()
