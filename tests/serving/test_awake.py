"""A process that was stopped finds nobody dead when it goes on; one that stays so is ended."""

import asyncio
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jax_engine import AsyncLLM, EngineDeadError, SamplingParams
from jax_engine.processes import child_process
from jax_engine.processes.child_process import ActiveTime
from jax_engine.serving import engine_client
from tests.support.patience import HANG_S

SILENCE_S = 2.0


def test_long_gaps_between_ticks_count_little(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(child_process.time, "monotonic", lambda: now)
    count = ActiveTime(at_most=1.0)
    for later, expected in ((100.5, 0.5), (101.5, 1.5), (200.0, 2.5), (200.25, 2.75)):
        now = later
        count.tick()
        assert count.seconds == expected


@pytest.mark.parametrize("closing", [True, False])
def test_a_process_that_is_being_closed_has_its_time_to_end(
    closing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`close` may run on another thread than the loop that looks for processes that stall."""
    monkeypatch.setattr(engine_client, "TICK_S", 0.0)
    kills: list[int] = []
    client: Any = engine_client.EngineClient.__new__(engine_client.EngineClient)
    client._awake, client._failed, client._closing = ActiveTime(1.0), None, closing
    client._process = SimpleNamespace(poll=lambda: 0, kill=lambda: kills.append(1))
    monkeypatch.setattr(client, "_how_it_ended", lambda: "it ended")
    asyncio.run(asyncio.wait_for(client._tick(), HANG_S))
    assert (kills, client._failed) == (([], None) if closing else ([1], "it ended"))


@pytest.mark.slow
def test_ctrl_z_of_both_processes_is_no_death_and_of_the_engine_alone_is(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_client, "SILENCE_S", HANG_S)
    settings = {"block_size": 4, "max_model_len": 64, "num_gpu_blocks_override": 60}
    llm = AsyncLLM(str(checkpoint), **settings)

    async def stop_both_and_then_one() -> None:
        params = SamplingParams(max_tokens=2)
        assert [one async for one in llm.generate("x", params)][-1].finished
        client = llm._engines._clients[0]
        before = client._last_beat
        while client._last_beat == before:
            await asyncio.sleep(0.01)
        os.kill(llm.engine_pid, signal.SIGSTOP)
        time.sleep(SILENCE_S + 1)  # this process does nothing either
        client._awake.tick()  # its first when it goes on, before any beat can have come
        monkeypatch.setattr(engine_client, "SILENCE_S", SILENCE_S)
        assert llm.is_running
        monkeypatch.setattr(engine_client, "SILENCE_S", HANG_S)
        os.kill(llm.engine_pid, signal.SIGCONT)
        assert [one async for one in llm.generate("x", params)][-1].finished
        os.kill(llm.engine_pid, signal.SIGSTOP)
        monkeypatch.setattr(engine_client, "SILENCE_S", SILENCE_S)
        with pytest.raises(EngineDeadError, match="has said nothing"):
            await anext(llm.generate("x", params))  # it is sent, and nobody answers
        assert "has said nothing" in str(llm.dead_error) and not llm.is_running
        with pytest.raises(EngineDeadError, match="has said nothing"):
            await anext(llm.generate("x", params))

    asyncio.run(asyncio.wait_for(stop_both_and_then_one(), HANG_S))
    assert not Path(f"/proc/{llm.engine_pid}").exists(), "a stopped process was left"
    llm.shutdown()
