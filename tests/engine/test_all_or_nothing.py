"""Whatever is raised while a request is added, wherever: the engine is as it was before."""

import threading
from typing import Any

import pytest
from jax.errors import JaxRuntimeError

from jax_engine import (
    LLM,
    InvalidRequestError,
    LLMEngine,
    OutOfMemoryError,
    PoolingParams,
    SamplingParams,
    StructuredOutputsParams,
)
from jax_engine.engine.calls import Call, Calls
from jax_engine.engine.running_requests import RunningRequests
from tests.support.byte_tokenizer import save_letter_tokenizer
from tests.support.in_process import check_idle, run
from tests.support.patience import join
from tests.support.raise_at import raise_everywhere
from tests.support.tiny_llama import EOS, VOCAB, tiny_llama

SETTINGS: dict[str, Any] = {
    "block_size": 4, "max_model_len": 40, "max_num_seqs": 8, "num_gpu_blocks_override": 60
}  # fmt: skip
UNSEEDED = SamplingParams(max_tokens=6, ignore_eos=True)
REQUESTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "plain": (SamplingParams(temperature=0.0, max_tokens=4), {}),
    "sampled": (SamplingParams(n=2, max_tokens=4, logit_bias={3: 1.0}, logprobs=1), {}),
    "guided": (SamplingParams(structured_outputs=StructuredOutputsParams(choice=["AB"])), {}),
    "pooling": (PoolingParams(), {}),
    "timed": (SamplingParams(max_tokens=4, stop="D"), {"timeout": 9.0, "arrival_time": 0.0}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path, _ = tiny_llama(tmp_path_factory.mktemp("models") / "tiny")
    save_letter_tokenizer(path, VOCAB, EOS)
    return str(path)


@pytest.fixture(scope="module")
def fresh_tokens(folder) -> list[int]:
    """What the first request of an engine draws when it has no seed."""
    return first_tokens(LLM(folder, **SETTINGS))


@pytest.fixture
def llm(folder):
    return LLM(folder, **SETTINGS)


def first_tokens(llm: LLM) -> list[int]:
    return llm.generate("ABC", UNSEEDED, use_tqdm=False)[0].outputs[0].token_ids


def counters(llm: LLM) -> tuple[int, ...]:
    running, scheduler = llm.llm_engine._running, llm.llm_engine.scheduler
    return running._num_added, scheduler._num_added, llm._calls._num_requests


def check_others_can_use_it(llm: LLM) -> None:
    thread = threading.Thread(target=llm.get_metrics, daemon=True)
    thread.start()
    join(thread)  # else a lock was kept


@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.slow
def test_a_request_is_added_whole_or_not_at_all(llm, fresh_tokens, kind) -> None:
    """The id can be used again, and the next request draws what it would have drawn."""
    engine, (params, service) = llm.llm_engine, REQUESTS[kind]
    added: list[str] = []

    def add() -> None:
        engine.add_request("0", "ABCD", params, **service)
        added.append("0")

    def check() -> None:
        if added:  # nothing was raised
            engine._running._take_back(engine._running.requests[added.pop()])
            engine._running._num_added = 0
        check_idle(engine)
        assert counters(llm) == (0, 0, 0)

    places = raise_everywhere(add, LLMEngine.add_request, RunningRequests.add, check)
    assert places > 100
    check_others_can_use_it(llm)
    assert first_tokens(llm) == fresh_tokens


@pytest.mark.slow
def test_a_batch_is_added_whole_or_not_at_all(llm, fresh_tokens) -> None:
    """Wherever the error is raised, none of the three prompts stays."""
    engine, params = llm.llm_engine, SamplingParams(max_tokens=2, seed=1)
    running = engine._running

    def add() -> None:
        engine.add_all([engine.check_request(one, params, one) for one in ("AB", "CD", "EF")])

    def check() -> None:
        if running.requests:  # nothing was raised
            assert list(running.requests) == ["AB", "CD", "EF"]
            for request in [*running.requests.values()][::-1]:
                running._take_back(request)
            running._num_added = 0
        check_idle(engine)
        assert counters(llm) == (0, 0, 0)

    assert raise_everywhere(add, LLMEngine.add_all, RunningRequests.add, check) > 100
    check_others_can_use_it(llm)
    assert first_tokens(llm) == fresh_tokens


@pytest.mark.slow
def test_an_exception_in_the_call_leaves_nothing_running(llm) -> None:
    """Wherever Ctrl-C strikes in the thread that calls: what was added by then has ended."""

    def generate() -> None:
        llm.generate(["AB", "CD"], SamplingParams(max_tokens=2, seed=1), use_tqdm=False)

    def check() -> None:
        check_idle(llm.llm_engine)

    assert raise_everywhere(generate, LLM.generate, Call.last_outputs, check) > 200
    check_others_can_use_it(llm)


def test_what_enqueue_left_running_is_waited_for(llm) -> None:
    """Raised anywhere in it: there is nothing, or `wait_for_completion` returns it."""
    engine, prompts = llm.llm_engine, ["AB", "CD"]
    params = SamplingParams(max_tokens=2, seed=1, ignore_eos=True)
    wanted = [one.outputs[0].token_ids for one in llm.generate(prompts, params, use_tqdm=False)]
    found = []

    def check() -> None:
        outputs = llm.wait_for_completion(use_tqdm=False)
        found.append(len(outputs))
        assert len(outputs) in (0, 2)
        assert [one.outputs[0].token_ids for one in outputs] == wanted[: len(outputs)]
        check_idle(engine)

    call = lambda: llm.enqueue(prompts, params, use_tqdm=False)  # noqa: E731
    assert raise_everywhere(call, Calls.enqueue, Calls.enqueue, check) > 10
    assert found.count(2) >= 2, "where nothing was raised, or the engine had it by then"
    assert llm.generate(prompts, params, use_tqdm=False)[1].outputs[0].token_ids == wanted[1]
    check_others_can_use_it(llm)


@pytest.mark.slow
def test_a_step_that_is_interrupted_anywhere_leaves_a_whole_engine(llm) -> None:
    """The interrupt may come in the middle of the scheduler, the block manager or the outputs."""
    engine, prompts = llm.llm_engine, {"a": "AB" * 5, "b": "AB" * 4 + "D"}
    guide = StructuredOutputsParams(choice=["AB"])
    params = [
        SamplingParams(n=2, max_tokens=3, seed=1, stop="A", logprobs=1),
        SamplingParams(structured_outputs=guide, max_tokens=3, seed=1),
    ]

    def generate() -> dict[str, list[list[int]]]:
        for (name, prompt), one in zip(prompts.items(), params, strict=True):
            engine.add_request(name, prompt, one)
        return {
            output.request_id: [one.token_ids for one in output.outputs] for output in run(engine)
        }

    def check() -> None:
        engine.abort_request(prompts)  # raised before the step began, or behind it
        engine.outputs()
        check_idle(engine)

    wanted = generate()
    assert raise_everywhere(generate, LLMEngine.step, RunningRequests.finish, check) > 300
    check_others_can_use_it(llm)
    assert generate() == wanted


def test_memory_that_runs_out_in_a_step_is_a_typed_error(llm, monkeypatch) -> None:
    words = "RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes."

    def no_memory(*_args: Any) -> None:
        raise JaxRuntimeError(words)

    with monkeypatch.context() as during:
        during.setattr(llm.llm_engine.worker, "collect", no_memory)
        with pytest.raises(OutOfMemoryError, match=r"a step.* gpu_memory_utilization") as raised:
            llm.generate("AB", UNSEEDED, use_tqdm=False)
    assert str(raised.value.__cause__) == words
    check_idle(llm.llm_engine)
    assert llm.generate("AB", UNSEEDED, use_tqdm=False)[0].outputs[0].token_ids


def test_an_id_twice_in_a_batch_takes_back_the_first(llm, monkeypatch) -> None:
    monkeypatch.setattr("jax_engine.engine.calls.str", lambda _: "same", raising=False)
    with pytest.raises(InvalidRequestError, match="'same' is already running"):
        llm.generate(["AB", "CD"], UNSEEDED, use_tqdm=False)
    check_idle(llm.llm_engine)
    assert counters(llm) == (0, 0, 0)


BAD_SERVICE = [
    ({"request_id": 5}, "request_id must be a string, got 5"),
    ({"request_id": None}, "request_id must be a string, got None"),
    ({"priority": "x"}, "priority must be an integer, got 'x'"),
    ({"priority": 1.5}, "priority must be an integer"),
    ({"priority": 2**64}, "priority must be in"),
    ({"arrival_time": "x", "timeout": 5}, "arrival_time must be a number, got 'x'"),
    ({"arrival_time": float("nan")}, "arrival_time must be finite"),
    ({"timeout": "x"}, "timeout must be a number"),
    ({"timeout": 0}, "timeout must be in"),
]


@pytest.mark.parametrize(("service", "words"), BAD_SERVICE)
def test_bad_service_is_refused_with_words(folder, service, words) -> None:
    engine = LLM(folder, scheduling_policy="priority", **SETTINGS).llm_engine
    with pytest.raises(InvalidRequestError, match=words):
        engine.add_request(**{"request_id": "a", "prompt": "AB", "params": UNSEEDED} | service)
    check_idle(engine)
    engine.add_request("a", "AB", UNSEEDED, priority=-3, arrival_time=0, timeout=9)
    assert engine.abort_request("a")


def test_bad_priorities_of_a_batch_leave_nothing(folder) -> None:
    llm = LLM(folder, scheduling_policy="priority", **SETTINGS)
    with pytest.raises(InvalidRequestError, match="priority must be an integer, got 'x'"):
        llm.generate(["AB", "CD"], UNSEEDED, priority=["x", 1], use_tqdm=False)
    check_idle(llm.llm_engine)
    assert len(llm.generate(["AB", "CD"], UNSEEDED, priority=[2, 1], use_tqdm=False)) == 2
