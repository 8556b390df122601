"""Several engines behind one `LLM` (data_parallel_size): its calls, and real processes at the end.

But for the last tests, the engines have no device.
"""

import gc
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jax_engine import (
    LLM,
    ConfigError,
    EngineDeadError,
    InvalidRequestError,
    LLMEngine,
    LoRARequest,
    SamplingParams,
    StepFailedError,
)
from jax_engine.config.engine_config import EngineConfig
from jax_engine.engine import calls as calls_module
from jax_engine.engine.calls import Call, Calls, build_engines, check_all
from jax_engine.processes.placement import VARIABLE
from jax_engine.sampling_params import RequestOutputKind
from tests.support.builders import small_engine
from tests.support.in_process import check_idle
from tests.support.patience import until

LAST = RequestOutputKind.FINAL_ONLY  # as `LLM` asks for
LONG = SamplingParams(temperature=0.0, max_tokens=9, ignore_eos=True, output_kind=LAST)
ASKS: list[dict[str, Any]] = [
    {"temperature": 1.0}, {"temperature": 1.0, "n": 3}, {"temperature": 0.0}, {"seed": 5, "n": 2},
    {"temperature": 2.0, "logprobs": 2},
]  # fmt: skip
WORK = st.lists(
    st.tuples(
        st.lists(st.integers(0, 2), min_size=1, max_size=9),
        st.sampled_from(ASKS),
        st.integers(1, 6),
    ),
    min_size=1,
    max_size=9,
)


def several(count: int, **changes: Any) -> tuple[Calls, list[LLMEngine]]:
    engines = [small_engine(**changes) for _ in range(count)]
    return Calls(*engines), engines


def asked(engine: LLMEngine, work: list[Any]) -> list[Any]:
    """The requests of `LLM.generate`."""
    params = [
        SamplingParams(**ask, max_tokens=most, ignore_eos=True, output_kind=LAST)
        for _, ask, most in work
    ]
    count = len(work)
    return check_all(engine, [one for one, *_ in work], params, [0] * count, [None] * count)


def told(outputs: list[Any]) -> list[Any]:
    return [
        (one.request_id, one.prompt_token_ids, [(i.token_ids, i.logprobs) for i in one.outputs])
        for one in outputs
    ]


def check_nothing_left(calls: Calls, engines: list[LLMEngine]) -> None:
    """No engine has a request, and the router knows of none."""
    for engine in engines:
        check_idle(engine)
    assert calls._routes is not None
    router = calls._routes._router
    assert not router._engine_of
    assert [(one.num_open, one.pending) for one in router._loads] == [(0, {})] * len(engines)


def num_prompts(engines: list[LLMEngine]) -> list[int]:
    """How many prompt tokens each engine was asked for, by its own count."""
    found = []
    for engine in engines:
        metrics = {one.name: one for one in engine.get_metrics()}
        found.append(metrics["vllm:prompt_tokens"].value)  # type: ignore[attr-defined]
    return found


@given(st.integers(2, 3), st.lists(WORK, min_size=1, max_size=3), st.booleans())
@example(2, [[([0, 1], ASKS[0], 3)] * 5, [([0, 1], ASKS[1], 3)] * 2], True)
def test_outputs_and_ids_are_those_of_one_engine(
    count: int, batches: list[list[Any]], enqueued: bool
) -> None:
    """So are those of requests without a seed, which get one from their numbers."""
    found = []
    for number in (1, count):
        calls, engines = several(number)
        if enqueued:
            for work in batches:
                calls.enqueue(asked(engines[0], work))
            outputs = calls.wait_enqueued(False)
        else:
            outputs = [one for work in batches for one in calls.run(asked(engines[0], work), False)]
        found.append(told(outputs))
    assert found[0] == found[1]
    check_nothing_left(calls, engines)


def test_all_engines_have_work_and_common_prompts_gather() -> None:
    calls, engines = several(3)
    work = [([i % 3, i // 3 % 3, i // 9], ASKS[2], 4) for i in range(27)]
    calls.run(asked(engines[0], work), False)
    assert min(num_prompts(engines)) >= 3 * 27 // 5
    calls, engines = several(2, enable_prefix_caching=True)
    long = [0, 1, 2, 0] * 3
    both = [([0], ASKS[2], 1), ([*long, 1], ASKS[2], 1)]  # each goes to an engine of its own
    calls.run(asked(engines[0], both), False)
    assert num_prompts(engines) == [1, 13]
    for last in (0, 2, 1):  # one after the other: no queue costs more than the prompt
        calls.run(asked(engines[0], [([*long, last], ASKS[2], 1)]), False)
    assert num_prompts(engines) == [1, 4 * 13]
    assert calls.reset_prefix_caches(LLMEngine.reset_prefix_cache)
    calls.run(asked(engines[0], [([*long, 1], ASKS[2], 1)]), False)
    assert num_prompts(engines) == [1 + 13, 4 * 13], "no engine has it any more"
    assert not calls.reset_prefix_caches(lambda engine: engine is engines[0])


def test_requests_of_one_engine_that_fails_end_the_call() -> None:
    calls, engines = several(2)
    worker: Any = engines[1].worker
    launch = worker.launch

    def failing(step: Any) -> Any:
        worker.launch = launch
        raise RuntimeError("no device")

    worker.launch = failing
    work = [([0, i], ASKS[0], 6) for i in range(3)]
    with pytest.raises(StepFailedError, match="no device"):
        calls.run(asked(engines[0], work), False)
    check_nothing_left(calls, engines)
    assert len(calls.run(asked(engines[0], work), False)) == 3, "they go on"
    worker.launch = failing
    calls.enqueue(asked(engines[0], [([0], ASKS[0], 9)] * 2))
    until(lambda: not calls._routes._router._engine_of)  # type: ignore[union-attr]
    with pytest.raises(StepFailedError, match="no device"):
        calls.wait_enqueued(False)
    check_nothing_left(calls, engines)


def test_no_request_is_left_when_an_engine_does_not_accept_its_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls, engines = several(2)

    def refuse(requests: Any) -> None:
        raise InvalidRequestError("no room")

    work = [([0, i], ASKS[0], 6) for i in range(3)]
    for refusing in engines:
        with monkeypatch.context() as patch:
            patch.setattr(refusing, "add_all", refuse)
            with pytest.raises(InvalidRequestError, match="no room"):
                calls.run(asked(engines[0], work), False)
        check_nothing_left(calls, engines)
    assert len(calls.run(asked(engines[0], work), False)) == 3


@pytest.mark.parametrize("when", range(2))
@pytest.mark.parametrize("at", range(2))
def test_ctrl_c_while_an_engine_is_asked(
    monkeypatch: pytest.MonkeyPatch, at: int, when: int
) -> None:
    """Before or behind what is asked of either engine: nobody is left of the call."""
    calls, engines = several(2)
    call = calls._loops[at].call

    def interrupted(work: Callable[[], Any]) -> Any:
        monkeypatch.undo()
        if when:
            call(work)
        raise KeyboardInterrupt

    monkeypatch.setattr(calls._loops[at], "call", interrupted)
    with pytest.raises(KeyboardInterrupt):
        calls.run(asked(engines[0], [([0, i], ASKS[0], 6) for i in range(3)]), False)
    check_nothing_left(calls, engines)


def test_timeouts_leave_nothing() -> None:
    calls, engines = several(2, num_gpu_blocks=60)
    for _ in range(2):
        requests = check_all(engines[0], [[0], [1], [2]], [LONG] * 3, [0] * 3, [1e-9, None, 1e-9])
        reasons = [one.outputs[0].stop_reason for one in calls.run(requests, False)]
        assert reasons == ["timeout", None, "timeout"]
        check_nothing_left(calls, engines)


def test_an_engine_that_has_died_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, engines = several(2)
    monkeypatch.setattr(engines[1], "problem", lambda: "it ended with signal 9")
    with pytest.raises(EngineDeadError, match=r"^engine 1: it ended with signal 9$"):
        calls.run(asked(engines[0], [([0], ASKS[0], 1)]), False)
    check_nothing_left(calls, engines)


def test_models_in_this_process_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"^distributed_executor_backend must be 'mp' .* got 'uni'$"
    ):
        LLM("nowhere", data_parallel_size=2, distributed_executor_backend="uni")


def children() -> set[int]:
    """The processes that this one has started and that run."""
    found = set[int]()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid() and fields[0] != "Z":
            found.add(int(folder.name))
    return found


@pytest.mark.slow
def test_none_is_left_if_one_cannot_be_built(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, build, count = children(), LLMEngine.from_config, 0

    def second_fails(*given: Any) -> LLMEngine:
        nonlocal count
        count += 1
        if count == 2:
            raise ConfigError("block_size is odd")
        return build(*given)

    monkeypatch.setattr(LLMEngine, "from_config", second_fails)
    settings: dict[str, Any] = {"skip_tokenizer_init": True, "max_model_len": 40}
    with pytest.raises(ConfigError, match="block_size is odd"):
        LLM(tiny, data_parallel_size=2, num_gpu_blocks_override=20, **settings)
    gc.collect()
    until(lambda: children() <= before)


@pytest.mark.slow
def test_real_processes(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their outputs are one engine's; then one is killed, and nothing is left of either."""
    before = children()
    settings: dict[str, Any] = {"block_size": 4, "max_model_len": 40, "max_num_seqs": 4}
    settings |= {"num_gpu_blocks_override": 60, "skip_tokenizer_init": True, "enable_lora": True}
    prompts = [[i % 5, 1, i // 5] for i in range(12)]
    params = SamplingParams(temperature=1.0, max_tokens=6, ignore_eos=True, logprobs=1, n=2)
    rng = np.random.default_rng(0)
    name = "base_model.model.model.layers.0.self_attn.q_proj"
    one = LLM(tiny, **settings)
    tensors = {
        f"{name}.lora_A.weight": rng.normal(
            size=(2, one.llm_engine.model_config.hidden_size)
        ).astype("float32"),
        f"{name}.lora_B.weight": rng.normal(size=(32, 2)).astype("float32"),
    }
    config = {
        "r": 2,
        "lora_alpha": 2,
        "peft_type": "LORA",
        "target_modules": ["layers.0.self_attn.q_proj"],
    }
    lora = LoRARequest("q", 1, lora_tensors=tensors, peft_config=config)
    loras = [None, lora] * 6

    def run(llm: LLM) -> Any:
        return told(llm.generate(prompts, params, use_tqdm=False, lora_request=loras))

    wanted, vectors = run(one), [each.outputs.embedding for each in one.embed(prompts)]
    del one
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        monkeypatch.setenv(VARIABLE, f"{cores[1]}|{cores[0]}")
    llm = LLM(tiny, data_parallel_size=2, **settings)
    assert run(llm) == wanted
    assert [each.outputs.embedding for each in llm.embed(prompts)] == vectors
    assert llm._calls._routes is not None and not llm._calls._routes._router._engine_of
    tokens = {
        metric.labels["engine"]: metric.value  # type: ignore[attr-defined]
        for metric in llm.get_metrics()
        if metric.name == "vllm:generation_tokens"
    }
    assert tokens.keys() == {"0", "1"} and all(tokens.values())
    assert sum(tokens.values()) == 12 * 2 * 6
    assert llm.reset_prefix_cache()
    pids = [loop.engine._client.pids[0] for loop in llm._calls._loops]  # type: ignore[union-attr]
    if len(cores) > 1:
        assert [sorted(os.sched_getaffinity(pid)) for pid in pids] == [[cores[1]], [cores[0]]]
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(EngineDeadError, match="signal 9"):
        while True:
            run(llm)
    with pytest.raises(EngineDeadError, match=r"^engine 1: .*signal 9"):
        run(llm)
    del llm
    gc.collect()
    until(lambda: children() <= before)


def test_one_engine_is_built_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr(LLMEngine, "from_config", lambda *config: given.append(config))
    config = EngineConfig(model="m")
    build_engines(config)
    assert given == [(config,)]


@pytest.mark.parametrize(("asked_for", "backend"), [(None, "mp"), ("mp", "mp"), ("ray", "ray")])
def test_each_of_several_engines_is_built_at_its_own_place(
    monkeypatch: pytest.MonkeyPatch, asked_for: Any, backend: Any
) -> None:
    """Its model is in another process, whatever the setting says; it knows of no other engine."""
    monkeypatch.setattr(calls_module, "places", lambda count, each: range(each, each + count))
    monkeypatch.setattr(LLMEngine, "from_config", lambda *given: given)
    config = EngineConfig(model="m", data_parallel_size=2, distributed_executor_backend=asked_for)
    each = replace(config, data_parallel_size=1, distributed_executor_backend=backend)
    built: list[Any] = build_engines(config)
    assert built == [(each, 1), (each, 2)]


def test_a_call_that_fails_leaves_the_router_nothing() -> None:
    """The next prompts would else avoid its engine, as if it had work."""
    calls, engines = several(2)
    requests = asked(engines[0], [([0, i], ASKS[2], 1) for i in range(3)])
    for number, request in enumerate(requests):
        request.group.request_id = str(number)
    assert calls._routes is not None
    calls._routes.choose(requests)
    call = Call(calls._routes)
    call.fail(["0", "1", "2"], StepFailedError("no device"))
    check_nothing_left(calls, engines)
    with pytest.raises(StepFailedError, match="no device"):
        call.next()
