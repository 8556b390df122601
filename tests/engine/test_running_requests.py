"""Requests begin and end in all places that know them; the engine's calls, one by one."""

from dataclasses import replace
from typing import Any

import pytest

from jax_engine import (
    InvalidRequestError,
    PoolingParams,
    RequestOutputKind,
    RequestTooLargeError,
    SamplingParams,
)
from jax_engine.engine import llm_engine
from jax_engine.engine.llm_engine import LLMEngine
from jax_engine.engine.requests.request import outputs_of
from jax_engine.engine.stats import Counter, Histogram
from jax_engine.errors import ForkedProcessError
from jax_engine.outputs import RequestOutput
from jax_engine.processes.placement import Place
from reference.random_numbers import request_seed
from tests.support.builders import letters, small_engine
from tests.support.in_process import check_idle, run

DRAW = SamplingParams(max_tokens=8, ignore_eos=True)  # with a seed of the engine's
GREEDY = SamplingParams(temperature=0.0, max_tokens=3, ignore_eos=True)


def ends(outputs: list[Any]) -> dict[str, Any]:
    return {one.request_id: one.outputs[0] for one in outputs if one.finished}


def first_draw(engine: LLMEngine) -> list[int]:
    engine.add_request("first", [0, 1], DRAW)
    found: list[int] = ends(run(engine))["first"].token_ids
    return found


def test_of_requests_that_were_not_accepted_nothing_is_left() -> None:
    """Requests without a seed draw later what they would have drawn."""
    engine = small_engine()
    new = [engine.check_request([0], DRAW, name) for name in "aba"]
    with pytest.raises(InvalidRequestError, match="request_id 'a' is already running"):
        engine.add_all(new)
    check_idle(engine)
    assert first_draw(engine) == first_draw(small_engine())


def test_lower_priorities_and_earlier_arrivals_run_first() -> None:
    engine = small_engine(policy="priority", max_num_seqs=1)
    for name, priority, arrival in [("a", 1, 5.0), ("b", 0, 5.0), ("c", 0, 4.0), ("d", -1, 9.0)]:
        engine.add_request(name, [0], GREEDY, priority=priority, arrival_time=arrival)
    assert list(ends(run(engine))) == ["d", "c", "b", "a"]


def test_a_request_arrives_when_it_is_added_or_when_it_says() -> None:
    engine = small_engine()
    engine.clock = lambda: 7.0
    engine.add_request("now", [0], GREEDY)
    engine.add_request("then", [0], GREEDY, arrival_time=3.0, timeout=4.5)
    engine.add_request("in time", [0], replace(GREEDY, max_tokens=1), timeout=0.5)
    engine.clock = lambda: 7.25
    outputs: dict[str, Any] = {one.request_id: one for one in engine.step()}
    assert outputs["in time"].finished and not outputs["then"].finished
    engine.clock = lambda: 7.5
    outputs |= {one.request_id: one for one in run(engine) if one.finished}
    assert outputs["now"].metrics.arrival_time == 7.0
    assert outputs["then"].metrics.arrival_time == 3.0
    assert outputs["then"].outputs[0].stop_reason == "timeout"
    assert outputs["now"].outputs[0].stop_reason is None
    check_idle(engine)


def test_who_has_no_seed_gets_one_of_the_engine_s() -> None:
    """The seed depends on how many requests came before it."""
    engine, other = small_engine(), small_engine()
    for i, name in enumerate("abc"):
        engine.add_request(name, [0, 1], DRAW)
        seed = request_seed(None, other.config.seed, i)
        other.add_request(name, [0, 1], replace(DRAW, seed=seed))
    mine, theirs = ends(run(engine)), ends(run(other))
    tokens = [one.token_ids for one in mine.values()]
    assert tokens == [one.token_ids for one in theirs.values()]
    assert tokens[0] != tokens[1] != tokens[2] != tokens[0]


def test_who_needs_all_its_tokens_in_each_step() -> None:
    engine = small_engine()
    engine.add_request("a", [0], DRAW)
    engine.add_request("b", [0], replace(DRAW, presence_penalty=0.5))
    needs = [engine.scheduler.groups[name].needs_history for name in "ab"]
    assert needs == [False, True]


@pytest.mark.parametrize(
    ("params", "waits"), [({}, False), ({"bad_words": ["A"]}, False), ({"bad_words": ["AB"]}, True)]
)
def test_who_must_wait_for_its_last_token(params: dict[str, Any], waits: bool) -> None:
    """No step ahead is planned for a request whose next mask depends on what it draws."""
    engine = small_engine(ahead=True)
    engine.add_request("a", [0], SamplingParams(**params))
    assert engine.scheduler.groups["a"].needs_last_token is waits


def test_what_a_failed_step_aborted() -> None:
    """A driver gets it, as far as it came; whoever calls `step` knows from the exception."""
    engine = small_engine()
    worker: Any = engine.worker
    engine.add_request("mine", [0, 1], GREEDY)
    engine.step()
    worker.fail_at = "launch"
    with pytest.raises(worker.Error):
        engine.run_step()
    (output,) = outputs_of(engine.take_lost())
    assert isinstance(output, RequestOutput) and output.finished and output.request_id == "mine"
    assert (output.outputs[0].finish_reason, len(output.outputs[0].token_ids)) == ("abort", 1)
    assert engine.take_lost() == [], "it is told once"
    check_idle(engine)
    engine.add_request("mine", [0, 1], GREEDY)
    worker.fail_at = "collect"
    with pytest.raises(worker.Error):
        engine.step()
    assert engine.outputs() == engine.take_lost() == [], "the exception has told it"
    assert ends([*run(engine)]) == {} and len(first_draw(engine)) == 8


def test_a_name_that_is_used_again_is_not_planned_before_it_came() -> None:
    """A step on its way, which another request needs, has the one that had the name before."""
    engine, now = small_engine(ahead=True), 0.0
    engine.clock = lambda: now
    for name in "ab":
        engine.add_request(name, [0, 1], GREEDY)
    engine.step()
    engine.abort_request("a")
    now = 5.0
    engine.add_request("a", [0, 1], GREEDY)
    (last,) = [one for one in run(engine) if one.finished and one.request_id == "a"]
    assert isinstance(last, RequestOutput) and last.metrics is not None
    assert (last.metrics.arrival_time, last.metrics.scheduled_time) == (5.0, 5.0)


def test_each_end_is_recorded() -> None:
    """What `get_metrics` and `stats` have counted when all is over."""
    engine = small_engine()
    times = iter(range(100))
    engine.clock = lambda: float(next(times))
    engine.add_request("a", [0, 1], GREEDY)
    engine.add_request("b", [0], replace(GREEDY, max_tokens=9))
    for _ in range(3):
        engine.step()
    engine.abort_request("b")
    found = {one.name.removeprefix("vllm:"): one for one in engine.get_metrics()}
    tokens, latency = found["generation_tokens"], found["e2e_request_latency_seconds"]
    assert isinstance(tokens, Counter) and tokens.value == 6
    queries = found["prefix_cache_queries"]
    assert isinstance(queries, Counter) and queries.value == 2 + 1
    assert isinstance(latency, Histogram) and (latency.count, latency.sum) == (2, 7.0 + 7.0)
    named = [one for one in engine.get_metrics() if one.name != "vllm:cache_config_info"]
    assert {one.labels["model_name"] for one in named} == {"stub"}
    engine.config = replace(engine.config, model="a name")
    assert engine.get_metrics()[0].labels["model_name"] == "a name"
    engine.config = replace(engine.config, model=None)
    assert engine.get_metrics()[0].labels["model_name"] == "stub", "the model's folder"
    assert (engine.stats().num_steps, engine.stats().num_tokens) == (3, 3 + 2 + 2)


def test_requests_that_are_not_accepted() -> None:
    engine = small_engine()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"request_id": 5}, "request_id must be a string"),
        ({"timeout": -1.0}, "timeout must be"),
        ({"priority": 0.5}, "priority must be an integer"),
        ({"params": PoolingParams(task="classify")}, "a classification head"),
        ({"prompt": [3]}, "prompt_token_ids"),
    ]
    for changes, words in wrong:
        given: Any = {"request_id": "a", "prompt": [0], "params": None} | changes
        with pytest.raises(InvalidRequestError, match=words):
            engine.add_request(**given)
    with pytest.raises(RequestTooLargeError):
        engine.check_request([0] * 40)  # there is no room for a token behind it
    check_idle(engine)
    assert engine.check_request([0]).params.max_tokens == 16


@pytest.mark.parametrize("kind", RequestOutputKind)
def test_where_the_end_of_an_aborted_request_goes(kind: RequestOutputKind) -> None:
    """With deltas it follows those of the last step, which the caller may not have read yet."""
    engine = small_engine()
    engine.add_request("mine", [0], replace(DRAW, output_kind=kind))
    engine.step()
    given = engine.abort_request(["mine", "mine", "nobody"])
    if kind is RequestOutputKind.DELTA:
        assert given == []
        given = engine.outputs()
    assert [one.request_id for one in given] == ["mine"]
    assert engine.outputs() == []
    check_idle(engine)


def test_who_is_running() -> None:
    engine = small_engine()
    assert engine.step() == []
    engine.add_request("a", [0], replace(GREEDY, max_tokens=1))
    assert engine.is_running("a") and not engine.is_running("x")
    engine.run_step()
    assert not engine.is_running("a")
    assert list(ends(engine.outputs())) == ["a"] and engine.outputs() == []


def test_text_needs_a_tokenizer() -> None:
    assert small_engine().text_tokenizer() is letters()
    with pytest.raises(InvalidRequestError, match="the engine has no tokenizer"):
        small_engine(has_text=False).text_tokenizer()


def test_in_a_fork_everything_is_refused() -> None:
    engine = small_engine()
    engine._pid += 1
    for call in (engine.check_process, engine.step, lambda: engine.check_request([0])):
        with pytest.raises(ForkedProcessError):
            call()


@pytest.mark.parametrize("warmup", [False, True])
def test_steps_are_compiled_ahead_if_asked_for(
    monkeypatch: pytest.MonkeyPatch, warmup: bool
) -> None:
    class Built(LLMEngine):
        def __init__(self, parts: Any) -> None:
            self.built, self.warm = parts, False

        def warmup(self, *, use_tqdm: bool = True) -> int:
            self.warm = use_tqdm
            return 0

    monkeypatch.setattr(llm_engine, "build_engine", lambda *given: ("parts of", *given))
    config, place = replace(small_engine().config, warmup=warmup), Place([0], {})
    engine: Any = Built.from_config(config, place)
    assert (engine.built, engine.warm) == (("parts of", config, place), warmup)
