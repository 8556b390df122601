"""An exception at any line by which blocks move: what comes later finds a whole engine.

(`test_all_or_nothing.py` raises at the lines of other steps.)
"""

from dataclasses import replace
from typing import Any

import pytest

from jax_engine import LLMEngine, SamplingParams
from jax_engine.step import Step
from tests.support.builders import pair_without_device
from tests.support.in_process import check_idle, debug_state
from tests.support.in_process import run as run_all
from tests.support.raise_at import Place, places_of, raise_everywhere
from tests.support.strategies import Settings
from tests.support.stub_runner import MOVES, moves_of

# So small that two samples copy a block, and that a request is swapped out and in again.
TIGHT = Settings(2, 6, 40, 0.0, True, 8, 64, 4, "unified", "fcfs", "swap", True, 0)
SAMPLES = [2, 1, 1]


def add_all(engine: LLMEngine) -> None:
    for i, n in enumerate(SAMPLES):
        params = SamplingParams(n=n, seed=i, max_tokens=3, ignore_eos=True)
        engine.add_request(str(i), [i], params, arrival_time=0.0)


def run(engine: LLMEngine) -> dict[str, list[list[int]]]:
    """To the end; the tokens of those that have ended by themselves."""
    return {
        output.request_id: [one.token_ids for one in output.outputs]
        for output in run_all(engine)
        if output.finished and all(one.finish_reason == "length" for one in output.outputs)
    }


def steps_with_moves(engine: LLMEngine) -> dict[str, int]:
    """How many steps come before the first that moves blocks in each way."""
    worker: Any = engine.worker
    before, number, launch = dict[str, int](), 0, worker.launch

    def noted(step: Step) -> Any:
        for move in moves_of(step):
            before.setdefault(move, number)
        return launch(step)

    worker.launch = noted
    add_all(engine)
    while engine.has_unfinished_requests():
        engine.step()
        number += 1
    del worker.launch
    return before


def two_steps(engine: LLMEngine) -> None:
    """A step that is launched ahead in the first is collected in the second."""
    engine.step()
    engine.step()
    engine.stats()


@pytest.fixture(scope="module")
def lines_of_other_steps() -> list[Place]:
    """Places in two steps of an engine that has room for all, from the plan to the outputs."""
    engine, _ = pair_without_device(replace(TIGHT, num_gpu_blocks=60, block_size=1), ahead=True)
    add_all(engine)
    engine.step()
    return places_of(lambda: two_steps(engine), LLMEngine.step, LLMEngine.stats)


@pytest.mark.slow
@pytest.mark.parametrize("move", MOVES)
def test_a_step_that_moves_blocks_is_interrupted_anywhere(
    move: str, lines_of_other_steps: list[Place]
) -> None:
    """No block leaks (I9); the same requests, added again, get what they would have got."""
    engine, _ = pair_without_device(TIGHT, ahead=True)
    num_steps = steps_with_moves(engine)[move]
    add_all(engine)
    wanted = run(engine)
    assert list(wanted) == ["0", "1", "2"]

    def begin() -> None:
        add_all(engine)
        for _ in range(num_steps):
            engine.step()

    def check() -> None:
        debug_state(engine).check()
        assert run(engine).items() <= wanted.items()
        check_idle(engine)
        add_all(engine)
        assert run(engine) == wanted
        begin()

    begin()
    places = raise_everywhere(
        lambda: two_steps(engine), LLMEngine.step, LLMEngine.stats, check, lines_of_other_steps
    )
    print("PLACES", places)
    assert places > 50
