"""The stub runner of the tests is a runner like the worker: the same steps, the same answers.

What a controller may rely on is written in `jax_engine.step.Runner`, and nothing else is demanded.
"""

from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from jax_engine import PoolingParams, SamplingParams
from jax_engine.engine.pooling.pooling import PooledParams
from jax_engine.engine.running_requests import request_setup
from jax_engine.processes.runner_client import RemoteRunner
from jax_engine.step import Capabilities, Moves, RequestSetup, Row, Runner, Samples, Step
from jax_engine.worker.worker import Worker
from tests.support.builders import Pool, model_pair, parts_for
from tests.support.in_server import in_servers
from tests.support.runner_pair import Clerk, Rounding, RunnerPair
from tests.support.stub_runner import StubRunner
from tests.support.through_bytes import ThroughBytes
from tests.support.tiny_llama import EOS, VOCAB

POOL = Pool(3, 17)
STEPS = 25
# What requests ask for; each kind costs a few compiled steps.
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"logprobs": 2},
    "samples": {"n": 2, "temperature": 1.0},
    "masked": {"logprobs": 1},
    "raw logits": {"logprobs": -1},
    "edited": {"presence_penalty": 1.0, "repetition_penalty": 1.5, "logit_bias": {5: 3.0}},
    "scored": {"prompt_logprobs": 2},
    "scored whole": {"prompt_logprobs": -1},
    "beams": {"use_beam_search": True, "n": 2, "temperature": 0.0},
    "pooled": {},
}


def runners(wrap: Any = lambda runner: runner) -> RunnerPair:
    worker = parts_for(POOL).worker
    return RunnerPair(StubRunner(model_pair(None)[1], worker.capabilities, {EOS}), worker, wrap)


@given(
    seed=st.integers(0, 2**32),
    kind=st.sampled_from(sorted(KINDS)),
    wall=st.sampled_from(["none", "bytes", "server"]),
)
@settings(max_examples=min(12, settings.default.max_examples))
def test_i13_the_stub_answers_as_the_worker_does(seed: int, kind: str, wall: str) -> None:
    """Chunks, forks, copies, swaps, tokens that are not known yet, closed requests, failures.

    Behind a wall nothing but bytes reaches either of them; or they are in servers, behind the
    clients that an engine has of another process.
    """

    def params(chance: Random) -> SamplingParams:
        if kind == "pooled" and chance.random() < 0.7:
            task: Any = chance.choice(["embed", "token_embed"])
            return PooledParams(pooling=PoolingParams(task=task))
        given: dict[str, Any] = {"temperature": chance.choice([0.0, 1.0])}
        return SamplingParams(**given | (KINDS[kind] if chance.random() < 0.7 else {}))

    with in_servers() as in_server:
        walls = {"none": lambda runner: runner, "bytes": ThroughBytes, "server": in_server}
        pair = runners(walls[wall])
        clerk = Clerk(pair, Random(seed), kind, params)
        try:
            for _ in range(STEPS):
                clerk.step()
                if clerk.chance.random() < 0.04:
                    event("failed")
                    clerk.fail()
                if clerk.chance.random() < 0.02:
                    event("measured")
                    pair.ask("measure_costs")
        except Rounding:
            event("rounded")


def one_step(setup: RequestSetup, *, masked: bool = False) -> Step:
    tokens = setup.prompt_token_ids
    row, samples = Row(0, setup.number, 0, tokens), Samples([len(tokens) - 1], [0])
    tables = np.arange(14, dtype=np.int32)[None]
    return Step([row], samples, tables, Moves([], [], []), [setup], [], masked)


def setup_of(**given: Any) -> RequestSetup:
    return request_setup(0, [3, 4, 5], SamplingParams(**given), 1, frozenset([EOS]))


@pytest.mark.parametrize("serves", [False, True])
def test_what_a_controller_must_not_do_is_refused(serves: bool) -> None:
    """A masked step is sampled before it is collected; only such a step has logits to read."""
    with in_servers() as in_server:
        pair = runners(in_server) if serves else runners()
        for masked, name in [(True, "collect"), (False, "logits")]:
            pair.ask("recover")
            ticket = pair.launch(one_step(setup_of(), masked=masked))
            pair.refuse(name, ticket, kind=AssertionError)
        pair.ask("recover")


def test_a_ticket_is_good_until_the_launch_after_the_next() -> None:
    """So a runner of another process need not be told which steps nobody collects."""
    runner = ThroughBytes(runners().stub)
    nothing = Step([], Samples([], []), np.zeros((0, 14), np.int32), Moves([], [], []), [], [])
    first = runner.launch(one_step(setup_of()))
    runner.launch(nothing)
    assert len(runner.collect(first).token_ids) == 1
    second = runner.launch(one_step(setup_of()))
    runner.launch(nothing)
    runner.launch(nothing)
    with pytest.raises(KeyError):
        runner.collect(second)


def test_both_have_what_the_protocol_names() -> None:
    """And mypy holds the worker to its types: `build.EngineParts.worker`."""
    names = {name for name in vars(Runner) if not name.startswith("_")}
    assert names == {
        "capabilities", "launch", "logits", "sample", "collect", "recover", "host_room",
        "measure_costs", "compile_ahead", "set_weights",
    }  # fmt: skip
    worker, stub = parts_for(POOL).worker, runners().stub
    assert isinstance(worker, Worker)
    everyone = worker, stub, RemoteRunner
    assert all(hasattr(one, name) for one in everyone for name in names)


class BagOfTokens:
    """An encoder: the state of a token is its square, and nothing is kept for later steps."""

    config = SimpleNamespace(
        cache_sizes=lambda: {"num_layers": 1, "num_kv_heads": 1, "head_dim": 1}
    )

    def forward(self, token_ids: np.ndarray, *_: Any) -> np.ndarray:
        return (token_ids**2)[:, None]


def test_a_runner_may_have_no_cache() -> None:
    """Tables have no columns, nothing moves, nothing is drawn: states come back. All in bytes."""
    sizes = Capabilities(VOCAB, 1, 0, 0, table_width=0, look_ahead_tokens=2**31)
    runner = ThroughBytes(StubRunner(BagOfTokens(), sizes))
    assert runner.capabilities == sizes and runner.host_room([])
    params = PooledParams(pooling=PoolingParams(task="token_embed"))
    setups = [request_setup(i, [1 + i] * (2 + i), params, 0, frozenset()) for i in range(2)]
    rows = [Row(i, i, 0, one.prompt_token_ids) for i, one in enumerate(setups)]
    step = Step(
        rows, Samples([], []), np.zeros((2, 0), np.int32), Moves([], [], []), setups, [0, 1]
    )
    found = runner.collect(runner.launch(step))
    assert found.token_ids == [] and found.logprobs is found.prompt is found.logits is None
    assert found.hidden.total.tolist() == [[2.0], [12.0]]
    assert found.hidden.last.tolist() == [[1.0], [4.0]]
    assert found.hidden.tokens.ravel().tolist() == [1.0, 1.0, 4.0, 4.0, 4.0]
    assert runner.setups == {}
