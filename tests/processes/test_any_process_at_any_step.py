"""Any process of a model that several share is killed or stopped, at any step: a typed end.

Two processes of a tiny model, which start anew for each example: each has a part of all layers, or
one of two stages.
"""

import asyncio
import gc
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from jax_engine import LLM, AsyncLLM, RequestOutputKind, SamplingParams
from jax_engine.errors import EngineDeadError
from jax_engine.processes import runner_child, runner_process
from jax_engine.serving import engine_client
from jax_engine.serving.api.app import make_app
from jax_engine.serving.api.service import ServerSettings, Service
from tests.support.devices import for_cpu_kernels
from tests.support.patience import HANG_S, until
from tests.support.tiny_llama import byte_llama

pytestmark = [
    pytest.mark.slow,
    for_cpu_kernels("they meet by a kernel for a CPU"),
]
BOUND_S = 15.0
SHORT_S = 2.0
FEW: dict[str, Any] = {
    "max_model_len": 40, "max_num_seqs": 8, "block_size": 4, "num_gpu_blocks_override": 13,
    "preemption_mode": "swap", "swap_space": 0.01, "dtype": "float32",
    "distributed_executor_backend": "mp",
}  # fmt: skip
SHARED = ("tensor_parallel_size", "pipeline_parallel_size")  # heads apart, or layers
PROMPTS = ["abcde", "ab", "aaaaaa", "abcdefghijklmnopqrstu"]
WHENS = ("prompts", "preempted", "aborted")  # what has just happened
SIGNALS = (signal.SIGKILL, signal.SIGSTOP)
EXAMPLES = max(1, settings.default.max_examples // 25)  # a start takes seconds


def asked(number: int) -> SamplingParams:
    """Every second request has two samples, which fork behind its prompt."""
    final = RequestOutputKind.FINAL_ONLY
    given = {"max_tokens": 18, "ignore_eos": True, "output_kind": final}
    return SamplingParams(n=1 + number % 2, seed=number, **given)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 64}
    return str(byte_llama(tmp_path_factory.mktemp("models") / "bytes", **heads))


def test_the_limits_keep_the_promise() -> None:
    """Silence and stillness are seen by a beat that may be on its way, and by a look."""
    late = runner_process.BEAT_S + 2 * runner_child.POLL_S
    assert max(runner_child.SILENCE_S, runner_child.STILL_S) + late < BOUND_S


def folder(pid: int) -> Path:
    """The folder of a process's sockets: its last argument."""
    return Path(Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").rpartition("\0")[2])


def memories() -> int:
    """How many descriptors of shared memory this process has."""
    count = 0
    for path in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor by which they are listed
            count += "memfd:jax-engine" in os.readlink(path)
    return count


def gone(pid: int) -> bool:
    """Whether no such process runs. A zombie whose parent was killed is init's."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return text.rpartition(")")[2].split()[0] == "Z"


@contextmanager
def nothing_left() -> Iterator[None]:
    """Shared memory is as before once nobody has the engine any more."""
    before = memories()
    yield
    gc.collect()
    assert memories() == before


def at_step(llm: LLM, when: str, later: int, within: bool, strike: Any) -> list[int]:
    """Calls `strike` once at the step that comes `later` steps behind `when`.

    Args:
        within: Not before the step, but when its results, or those of the one before, are read.

    Returns:
        The number of that step, when it has come.
    """
    engine, loop = llm.llm_engine, llm._calls._loops[0]
    runner: Any = engine.worker
    steps, since, struck = [0], list[int](), list[int]()
    step, collect = engine.run_step, runner.collect

    def stepped() -> Any:
        steps[0] += 1
        if not since and (when != "preempted" or engine.stats().num_swapped_out):
            since.append(steps[0])
        if since and not struck and steps[0] >= since[0] + later:
            struck.append(steps[0])
            if when == "aborted":
                loop.abort([next(iter(loop._readers))])
            if not within:
                strike()
        return step()

    def collected(ticket: Any) -> Any:
        if within and len(struck) == 1:
            struck.append(0)
            strike()
        return collect(ticket)

    engine.run_step = stepped  # type: ignore[method-assign]
    runner.collect = collected
    return struck


def errors_of_calls(llm: LLM) -> list[type[BaseException]]:
    """Generates for each prompt in a call of its own; returns the kinds of what they raise."""
    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        calls = [
            pool.submit(llm.generate, prompt, asked(i), use_tqdm=False)
            for i, prompt in enumerate(PROMPTS)
        ]
        errors = [call.exception(HANG_S) for call in calls]
    return [type(error) for error in errors if error is not None]


@pytest.mark.slow
@given(
    when=st.sampled_from(WHENS),
    later=st.integers(0, 9),
    rank=st.integers(0, 1),
    number=st.sampled_from(SIGNALS),
    ahead=st.booleans(),
    within=st.booleans(),
    shared=st.sampled_from(SHARED),
)
@settings(max_examples=EXAMPLES)
@example("preempted", 1, 1, signal.SIGSTOP, True, True, SHARED[0])
@example("aborted", 4, 0, signal.SIGKILL, False, False, SHARED[0])
@example("preempted", 2, 0, signal.SIGSTOP, True, True, SHARED[1])
@example("aborted", 3, 1, signal.SIGKILL, True, False, SHARED[1])
def test_each_request_of_llm_ends_with_a_typed_error(
    model: str,
    when: str,
    later: int,
    rank: int,
    number: int,
    ahead: bool,
    within: bool,
    shared: str,
) -> None:
    """Each waits in a call of its own; one that was aborted before may end as that."""
    event(f"{shared}, {when}, {signal.Signals(number).name}")
    with nothing_left(), pytest.MonkeyPatch.context() as patch:
        for name in ("SILENCE_S", "START_S", "STILL_S"):
            patch.setattr(runner_child, name, HANG_S)
        llm = LLM(model, **FEW, async_scheduling=ahead, **{shared: 2})
        client: Any = llm.llm_engine._client
        pids, owned = client.pids, [child.folder for child in client._children]

        def strike() -> None:
            patch.setattr(runner_child, "SILENCE_S", SHORT_S)
            os.kill(pids[rank], number)

        struck = at_step(llm, when, later, within, strike)
        failed = errors_of_calls(llm)
        assert struck
        event(f"step {struck[0]}")
        assert failed == [EngineDeadError] * len(failed) and len(failed) >= len(PROMPTS) - 1
        assert all(map(gone, pids)) and not any(map(os.path.exists, owned))
        with pytest.raises(EngineDeadError, match="process of the runner"):
            llm.generate(PROMPTS[0], asked(0), use_tqdm=False)
        del llm, client, strike, struck


def ranks(engine_pid: int) -> list[int]:
    """The processes of the model, which are the children of the engine's, in their order."""
    tasks = Path(f"/proc/{engine_pid}/task").glob("*/children")
    return sorted(int(one) for task in tasks for one in task.read_text().split())


@pytest.mark.slow
@given(
    victim=st.sampled_from(("engine", 0, 1)),
    number=st.sampled_from(SIGNALS),
    after=st.integers(0, 9),
    aborts=st.booleans(),
    shared=st.sampled_from(SHARED),
)
@settings(max_examples=EXAMPLES)
@example(victim=0, number=signal.SIGKILL, after=2, aborts=True, shared=SHARED[0])
@example(victim="engine", number=signal.SIGSTOP, after=5, aborts=False, shared=SHARED[0])
@example(victim=1, number=signal.SIGSTOP, after=3, aborts=True, shared=SHARED[1])
def test_each_request_of_a_server_ends_with_a_typed_error(
    model: str, victim: str | int, number: int, after: int, aborts: bool, shared: str
) -> None:
    """After so many outputs of one of them; and then its health is 503, and no process is left.

    One of the model's processes is stopped while its engine dies: it ends all the same.
    """
    event(f"{shared}, {victim}, {signal.Signals(number).name}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_client, "SILENCE_S", HANG_S)
        llm = AsyncLLM(model, **FEW, **{shared: 2})
        pids = [llm.engine_pid, *ranks(llm.engine_pid)]
        owned = [folder(pid) for pid in pids]
        assert len(pids) == 3 and all(path.is_dir() for path in owned)

        async def last(i: int) -> Any:
            return [one async for one in llm.generate(PROMPTS[i], asked(i), f"{i}")][-1]

        async def end() -> list[Any]:
            many = [asyncio.ensure_future(last(i)) for i in range(len(PROMPTS))]
            watched = SamplingParams(max_tokens=30, ignore_eos=True, seed=9)
            count = 0
            with pytest.raises(EngineDeadError):
                async for _ in llm.generate("ab", watched, "watched"):
                    count += 1
                    if count == after + 1:
                        if aborts:
                            await llm.abort("3")
                        strike()
            assert count > after
            found = await asyncio.gather(*many, return_exceptions=True)
            while llm.is_running:  # the engine has told its requests, and has to end yet
                await asyncio.sleep(0.05)
            with pytest.raises(EngineDeadError):
                await llm.check_health()
            return found

        def strike() -> None:
            patch.setattr(engine_client, "SILENCE_S", SHORT_S)
            if victim == "engine":
                os.kill(pids[1], signal.SIGSTOP)
                os.kill(pids[0], number)
            else:
                assert isinstance(victim, int)
                os.kill(pids[1 + victim], number)

        with asyncio.Runner() as runner:
            found = runner.run(asyncio.wait_for(end(), HANG_S))
            service = Service(llm, ServerSettings(names=("tiny",)))
            with TestClient(make_app(service)) as client:
                assert client.get("/health").status_code == 503
        failed = [one for one in found if isinstance(one, BaseException)]
        assert all(isinstance(one, EngineDeadError) for one in failed)
        llm.shutdown()
    for pid in pids:
        until(lambda pid=pid: gone(pid), f"the end of process {pid}")
    until(lambda: not any(path.exists() for path in owned), "the end of the folders")
