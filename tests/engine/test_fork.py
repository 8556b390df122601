"""A forked child cannot use the engine: JAX's threads are not in it. It is told so at once."""

import multiprocessing
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import pytest

from jax_engine import LLM, SamplingParams
from tests.support.patience import HANG_S
from tests.support.tiny_llama import tiny_llama

GREEDY = SamplingParams(temperature=0.0, max_tokens=2)
pytestmark = pytest.mark.filterwarnings("ignore:.*fork", "ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def llm(tmp_path_factory):
    path, _ = tiny_llama(tmp_path_factory.mktemp("models") / "tiny")
    settings: dict[str, Any] = {"block_size": 4, "max_model_len": 40, "max_num_seqs": 4}
    one = LLM(str(path), skip_tokenizer_init=True, num_gpu_blocks_override=40, **settings)
    one.generate([[4, 5]], GREEDY, use_tqdm=False)
    return one


CALLS: dict[str, Callable[[LLM], Any]] = {
    "generate": lambda llm: llm.generate([[4, 5]], GREEDY, use_tqdm=False),
    "generate nothing": lambda llm: llm.generate([], GREEDY, use_tqdm=False),
    "embed": lambda llm: llm.embed([[4, 5]], use_tqdm=False),
    "enqueue": lambda llm: llm.enqueue([[4, 5]], GREEDY, use_tqdm=False),
    "wait_for_completion": lambda llm: llm.wait_for_completion(use_tqdm=False),
    "add_request": lambda llm: llm.llm_engine.add_request("a", [4, 5], GREEDY),
    "check_request": lambda llm: llm.llm_engine.check_request([4, 5], GREEDY),
    "step": lambda llm: llm.llm_engine.step(),
    "abort_request": lambda llm: llm.llm_engine.abort_request("a"),
    "stats": lambda llm: llm.llm_engine.stats(),
    "get_metrics": lambda llm: llm.get_metrics(),
    "reset_prefix_cache": lambda llm: llm.llm_engine.reset_prefix_cache(),
    "warmup": lambda llm: llm.llm_engine.warmup(use_tqdm=False),
}


def in_child(llm: LLM, results: Connection) -> None:
    for name, call in CALLS.items():
        try:
            call(llm)
            results.send((name, "", "nothing was raised"))
        except Exception as error:
            results.send((name, type(error).__name__, str(error)))


def results_of_child(llm: LLM) -> list[tuple[str, str, str]]:
    ours, theirs = multiprocessing.get_context("fork").Pipe()
    child = multiprocessing.get_context("fork").Process(target=in_child, args=(llm, theirs))
    child.start()
    theirs.close()
    try:
        found = []
        for name in CALLS:
            assert ours.poll(HANG_S), f"{name} hangs in the child"
            found.append(ours.recv())
        child.join(HANG_S)
        assert child.exitcode == 0, "the child does not end"
    finally:
        child.kill()
        child.join()
    return found


@pytest.mark.parametrize("busy", [False, True], ids=["between steps", "during a step"])
@pytest.mark.slow
def test_a_forked_child_is_told_to_spawn(llm, busy, monkeypatch) -> None:
    """So is a child forked while the loop had the engine: the loop is not in the child."""
    began, go_on = threading.Event(), threading.Event()
    if busy:
        launch = llm.llm_engine.worker.launch

        def held(step: Any) -> Any:
            began.set()
            assert go_on.wait(HANG_S)
            return launch(step)

        monkeypatch.setattr(llm.llm_engine.worker, "launch", held)
        llm.enqueue([[4, 5]], GREEDY, use_tqdm=False)
        assert began.wait(HANG_S)
    try:
        found = results_of_child(llm)
    finally:
        go_on.set()
    for _, kind, words in found:
        assert (kind, 'get_context("spawn")' in words) == ("ForkedProcessError", True), found
    assert llm.generate([[4, 5]], GREEDY, use_tqdm=False)[0].finished, "the parent goes on"
    assert len(llm.wait_for_completion(use_tqdm=False)) == busy
