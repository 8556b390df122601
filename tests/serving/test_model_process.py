"""A server's engine whose model is in a third process: all three have one end.

`tests/engine/test_other_process.py` has the outputs of such a model, and `test_async_llm.py` those
of an engine in a process.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from jax_engine import AsyncLLM, EngineDeadError, RequestOutputKind, SamplingParams
from tests.support.patience import HANG_S, until

SETTINGS: dict[str, Any] = {
    "block_size": 4, "max_model_len": 64, "max_num_seqs": 8, "num_gpu_blocks_override": 60,
}  # fmt: skip
FINAL = {"output_kind": RequestOutputKind.FINAL_ONLY}
LONG = SamplingParams(max_tokens=50, ignore_eos=True, n=8, **FINAL)
Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def run() -> Iterator[Run]:
    with asyncio.Runner() as runner:
        yield lambda coroutine: runner.run(asyncio.wait_for(coroutine, HANG_S))


async def last(stream: AsyncIterator[Any]) -> Any:
    return [one async for one in stream][-1]


def model_pid(llm: AsyncLLM) -> int:
    """The one child of the engine's process."""
    tasks = Path(f"/proc/{llm.engine_pid}/task").glob("*/children")
    (pid,) = [int(one) for task in tasks for one in task.read_text().split()]
    return pid


def ends(pid: int) -> None:
    until(lambda: not Path(f"/proc/{pid}").exists(), f"the end of process {pid}")


def start(checkpoint: Path) -> AsyncLLM:
    return AsyncLLM(str(checkpoint), distributed_executor_backend="mp", **SETTINGS)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_while_requests_run_all_hear_of_its_end(checkpoint: Path, run: Run, number: int) -> None:
    llm = start(checkpoint)
    pids = llm.engine_pid, model_pid(llm)

    async def end() -> None:
        many = [asyncio.ensure_future(last(llm.generate("x", LONG))) for _ in range(40)]
        await last(llm.generate("x", SamplingParams(max_tokens=1)))
        os.kill(pids[1], number)
        found = await asyncio.gather(*many, return_exceptions=True)
        assert all(isinstance(one, EngineDeadError) for one in found[-9:])
        assert any("process of the runner" in str(one) for one in found)
        while llm.is_running:
            await asyncio.sleep(0.05)
        assert "exit status 1" in str(llm.dead_error)

    run(end())
    llm.shutdown()
    for pid in pids:
        ends(pid)


@pytest.mark.slow
def test_while_nothing_runs_its_end_is_missed(checkpoint: Path, run: Run) -> None:
    llm = start(checkpoint)

    async def end() -> None:
        assert (await last(llm.generate("x", SamplingParams(max_tokens=1)))).finished
        os.kill(model_pid(llm), signal.SIGKILL)
        while llm.is_running:
            await asyncio.sleep(0.05)
        with pytest.raises(EngineDeadError, match="exit status 1"):
            await last(llm.generate("x", SamplingParams(max_tokens=1)))

    run(end())
    llm.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("number", [None, signal.SIGKILL, signal.SIGSTOP])
def test_it_ends_with_the_engine(checkpoint: Path, number: int | None) -> None:
    llm = start(checkpoint)
    pids = llm.engine_pid, model_pid(llm)
    if number is not None:
        os.kill(llm.engine_pid, number)
    llm.shutdown()
    for pid in pids:
        ends(pid)
