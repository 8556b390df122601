"""Requests with adapters through the engine, on a runner that looks what each row finds."""

import gc
import pickle
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jax_engine import InvalidRequestError, LLMEngine, LoRARequest, PoolingParams, SamplingParams
from jax_engine.config.speculative_config import SpeculativeConfig
from jax_engine.engine.calls import Calls, check_all, loras_each
from jax_engine.engine.stats import Gauge
from jax_engine.lora.adapter import AdaptedModule, Adapter
from jax_engine.models.model_config import PoolingRecipe
from jax_engine.outputs import RequestOutput
from jax_engine.sampling_params import RequestOutputKind
from jax_engine.serving.engine_server import EngineServer
from jax_engine.serving.messages import Add, Outputs, Refused, decode_command, encode, lora_fields
from tests.support.builders import small_engine
from tests.support.in_process import check_idle, run
from tests.support.patience import HANG_S
from tests.support.some_adapters import some_adapter, some_lora

LAST = RequestOutputKind.FINAL_ONLY
GREEDY = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True, output_kind=LAST)
PROMPT = [0, 1, 0, 1, 1, 0]


def tokens(outputs: list[Any]) -> dict[str, list[int]]:
    return {one.request_id: one.outputs[0].token_ids for one in outputs}


def alone(number: int | None, params: SamplingParams = GREEDY) -> list[int]:
    """What a request with this adapter says when nobody else is there."""
    engine = small_engine(max_loras=1)
    engine.add_request("a", PROMPT, params, lora_request=some_lora(number))
    [tokens_of] = tokens(run(engine)).values()
    return tokens_of


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("max_loras", [1, 2, 8])
def test_each_gets_what_its_own_adapter_says(ahead: bool, max_loras: int) -> None:
    engine = small_engine(ahead=ahead, max_loras=max_loras)
    wanted = {}
    for i, number in enumerate([0, None, 1, 2, 0, None, 3, 1]):
        engine.add_request(str(i), PROMPT, GREEDY, lora_request=some_lora(number))
        wanted[str(i)] = alone(number)
    assert len({*map(tuple, wanted.values())}) > 2, "adapters say other things"
    assert tokens(run(engine)) == wanted
    check_idle(engine)
    assert engine.scheduler.slots.pinned() == {}


def test_outputs_have_the_request_s_own_words_for_its_adapter() -> None:
    engine, lora = small_engine(max_loras=1), some_lora(0)
    engine.add_request(
        "a", PROMPT, replace(GREEDY, output_kind=RequestOutputKind.DELTA), lora_request=lora
    )
    engine.add_request("b", PROMPT, GREEDY)
    outputs = run(engine)
    assert all(isinstance(one, RequestOutput) for one in outputs)
    assert {one.lora_request for one in outputs if one.request_id == "a"} == {lora}
    assert {one.lora_request for one in outputs if one.request_id == "b"} == {None}


def test_pooling_with_an_adapter() -> None:
    engine = small_engine(max_loras=2)
    model: Any = SimpleNamespace(matryoshka_dimensions=None, pooling=PoolingRecipe(), hidden_size=1)
    engine.model_config = model
    params = PoolingParams(normalize=False)
    for i, number in enumerate([None, 0, 1, 0]):
        engine.add_request(str(i), PROMPT, params, lora_request=some_lora(number))
    found = {one.request_id: one.outputs.data.tolist() for one in run(engine)}
    plain, first, second, again = (tuple(found[str(i)]) for i in range(4))
    assert first == again and len({plain, first, second}) == 3
    check_idle(engine)


def test_a_request_keeps_the_version_with_which_it_was_accepted() -> None:
    """Whatever is removed or forgotten meanwhile."""
    engine = small_engine(max_loras=1)
    lora = some_lora(0)
    assert lora is not None and engine.add_lora(lora)
    engine.add_request("a", PROMPT, GREEDY, lora_request=lora)
    engine.step()
    assert engine.list_loras() == {1} and engine.remove_lora(1) and engine.list_loras() == set()
    engine.add_request("b", PROMPT, GREEDY, lora_request=some_lora(1))
    assert tokens(run(engine)) == {"a": alone(0), "b": alone(1)}


def test_engines_that_take_no_adapters_say_why() -> None:
    lora = some_lora(0)
    assert lora is not None
    engine = small_engine()
    for call in (engine.read_lora, engine.add_lora):
        with pytest.raises(InvalidRequestError, match="build the engine with enable_lora=True"):
            call(lora)
    engine.config = replace(engine.config, enable_lora=True)
    with pytest.raises(InvalidRequestError, match="device has no slots for adapters"):
        engine.add_request("a", PROMPT, GREEDY, lora_request=lora)
    check_idle(engine)


@pytest.mark.parametrize("wrong", ["mine", 1, {"lora_name": "a"}])
def test_what_is_no_adapter_is_refused(wrong: Any) -> None:
    engine = small_engine(max_loras=1)
    with pytest.raises(InvalidRequestError, match="must be a LoRARequest or None, got"):
        engine.add_request("a", PROMPT, GREEDY, lora_request=wrong)
    check_idle(engine)


def test_a_batch_says_which_prompt_s_adapter_is_wrong() -> None:
    engine = small_engine(max_loras=1)
    loras = [some_lora(0), LoRARequest("gone", 2, "/no/such/place"), None]
    with pytest.raises(InvalidRequestError, match=r"prompts\[1\]: lora_request 'gone': no adapter"):
        check_all(engine, [PROMPT] * 3, [GREEDY] * 3, [0] * 3, [None] * 3, loras)


def test_arrays_become_one_adapter_for_all_prompts() -> None:
    """They are hashed once, not once for each prompt."""
    engine = small_engine(max_loras=1)
    one, made = LoRARequest("a", 1, lora_tensors={}, peft_config={}), []
    adapter = some_adapter(3)

    def read(lora: LoRARequest) -> Adapter:
        made.append(lora)
        return adapter

    engine.read_lora = read  # type: ignore[method-assign]
    found = loras_each(engine, [one, None, one], 3)
    assert made == [one] and found[1] is None
    assert [lora and lora.adapter for lora in found] == [adapter, None, adapter]


@pytest.mark.parametrize("place", ["launch", "launched", "collect", "collected"])
@pytest.mark.parametrize("ahead", [False, True])
def test_after_a_step_that_failed_all_slots_are_filled_anew(place: str, ahead: bool) -> None:
    """The runner has forgotten them."""
    engine = small_engine(ahead=ahead, max_loras=2)
    runner: Any = engine.worker
    for number in (0, 1):
        engine.add_request(str(number), PROMPT, GREEDY, lora_request=some_lora(number))
    engine.step()
    runner.fail_at = place
    with pytest.raises(runner.Error):
        run(engine)
    assert runner.slots == {} and engine.scheduler.slots.held() == {}
    for number in (1, 0):
        engine.add_request(str(number), PROMPT, GREEDY, lora_request=some_lora(number))
    assert tokens(run(engine)) == {"0": alone(0), "1": alone(1)}


@pytest.mark.parametrize("ahead", [False, True])
def test_a_slot_of_a_step_in_flight_is_taken_by_a_later_step(ahead: bool) -> None:
    """One slot, and an abort while a step with its adapter is on its way."""
    engine = small_engine(ahead=ahead, max_loras=1)
    engine.add_request("a", PROMPT, replace(GREEDY, max_tokens=20), lora_request=some_lora(0))
    engine.add_request("b", PROMPT, GREEDY, lora_request=some_lora(1))
    for _ in range(3):
        engine.step()
    engine.abort_request("a")
    assert tokens(run(engine)) == {"b": alone(1)}


def test_running_requests_that_are_reset_keep_their_adapters() -> None:
    engine = small_engine(ahead=True, max_loras=2)
    for number in (0, 1):
        engine.add_request(str(number), PROMPT, GREEDY, lora_request=some_lora(number))
    engine.step()
    assert engine.reset_prefix_cache(reset_running_requests=True)
    assert tokens(run(engine)) == {"0": alone(0), "1": alone(1)}


@pytest.mark.parametrize("method", ["ngram", "suffix", "draft_model"])
@pytest.mark.parametrize("ahead", [False, True])
def test_guesses_change_no_answer_of_an_adapter(method: str, ahead: bool) -> None:
    """A draft model guesses with its own weights alone: its runner has no slots, and asserts it."""
    options: dict[str, Any] = {"method": method, "num_speculative_tokens": 3}
    if method == "ngram":
        options |= {"prompt_lookup_min": 1, "prompt_lookup_max": 2}
    if method == "draft_model":
        options |= {"model": "stub"}
    speculation = SpeculativeConfig(enable_adaptive_verification=False, **options)
    engine = small_engine(ahead=ahead, max_loras=2, speculation=speculation)
    long = replace(GREEDY, max_tokens=24)
    wanted = {}
    for i, number in enumerate([0, None, 1, 0, 2, None]):
        engine.add_request(str(i), PROMPT, long, lora_request=some_lora(number))
        wanted[str(i)] = alone(number, long)
    assert tokens(run(engine)) == wanted


@pytest.mark.slow
def test_a_thousand_adapters_through_eight_slots() -> None:
    """Nothing of them is left, but for what the host keeps and what lies on the device."""
    engine = small_engine(ahead=True, has_text=False, max_loras=8, num_gpu_blocks=200)
    short = replace(GREEDY, max_tokens=2)
    for start in range(0, 1000, 50):
        for number in range(start, start + 50):
            one = np.ones((1, 1), np.float32)
            own = AdaptedModule("only", one, np.full((1, 1), number, np.float32), 2.0)
            lora = LoRARequest(f"of {number}", number + 1, adapter=Adapter((own,)))
            engine.add_request(str(number), PROMPT, short, lora_request=lora)
        outputs = run(engine)
        assert len(outputs) == 50
        check_idle(engine)
    del outputs, lora, own
    gc.collect()
    kept = engine._adapters
    assert len(kept) == 8 == len(kept._alive) == len(engine.scheduler.slots.held())
    assert len(engine.worker.slots) == 8  # type: ignore[attr-defined]


def test_files_are_read_in_the_thread_that_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one reads, requests of others run on; the loop's thread never reads."""
    engine = small_engine(max_loras=2)
    calls, reading, go_on = Calls(engine), threading.Event(), threading.Event()
    readers: list[str] = []

    def read(lora: LoRARequest) -> Adapter:
        readers.append(threading.current_thread().name)
        reading.set()
        assert go_on.wait(HANG_S)
        return some_adapter(0)

    monkeypatch.setattr(engine._adapters, "adapter", read)
    found: list[Any] = []

    def ask() -> None:
        lora = [LoRARequest("slow", 1, str(tmp_path))]
        requests = check_all(engine, [PROMPT], [GREEDY], [0], [None], lora)
        found.extend(calls.run(requests, use_tqdm=False))

    thread = threading.Thread(target=ask, name="who asks")
    thread.start()
    assert reading.wait(HANG_S)
    [other] = calls.run(check_all(engine, [PROMPT], [GREEDY], [0], [None]), use_tqdm=False)
    assert other.finished and not found
    go_on.set()
    thread.join(HANG_S)
    assert readers == ["who asks"] and tokens(found) == {"1": alone(0)}


def served(engine: LLMEngine, lora: dict[str, Any] | None) -> list[Any]:
    """What comes of a request over the link between two processes."""
    found: list[Any] = []
    server = EngineServer(engine, found.append)
    add = Add("a", PROMPT, {"temperature": 0.0, "max_tokens": 6, "ignore_eos": True}, False, 0.0,
              streams=False, lora=lora)  # fmt: skip
    command: Any = decode_command(encode(add))
    server.receive(command)
    for _ in range(20):
        server.loop.post(lambda: None)
        server.loop.turn()
    return [one for report in found if isinstance(report, Outputs) for one in report.outputs]


def test_an_adapter_over_the_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, asked = small_engine(max_loras=1), []

    def read(lora: LoRARequest) -> Adapter:
        asked.append(lora)
        return some_adapter(0)

    monkeypatch.setattr(engine._adapters, "adapter", read)
    monkeypatch.chdir(tmp_path)
    [output] = served(engine, lora_fields(LoRARequest("mine", 5, "folder")))
    assert asked == [LoRARequest("mine", 5, str(tmp_path / "folder"))]
    assert output.outputs[0].token_ids == alone(0)


def test_an_adapter_that_cannot_be_read_over_the_link() -> None:
    engine = small_engine(max_loras=1)
    [refused] = served(engine, {"lora_name": "mine", "lora_int_id": 1, "lora_path": "/no/place"})
    assert isinstance(refused, Refused) and refused.error == "InvalidRequestError"
    assert "lora_request 'mine': no adapter at /no/place" in refused.message
    check_idle(engine)


def test_what_lies_in_memory_cannot_be_sent() -> None:
    lora = some_lora(0)
    assert lora is not None
    with pytest.raises(InvalidRequestError, match=r"must have a lora_path .*got 'adapter 0'"):
        lora_fields(lora)


def test_an_adapter_comes_through_bytes_as_it_was() -> None:
    """The step goes to a runner of another process. The digest is not computed again."""
    adapter = some_adapter(5)
    sent = pickle.loads(pickle.dumps(adapter))
    assert sent == adapter and sent.digest == adapter.digest
    for module in sent.modules:
        for array in module.arrays:
            with pytest.raises(ValueError, match="WRITEABLE"):
                array.flags.writeable = True


def test_the_adapters_in_use_are_a_metric() -> None:
    """The labels are their names, as vLLM's dashboards show them, and their digests."""
    engine, digests = small_engine(max_loras=1), [some_adapter(i).digest for i in range(2)]
    for i, number in enumerate([0, 1, None, 0]):
        engine.add_request(str(i), PROMPT, GREEDY, lora_request=some_lora(number))
    engine.step()

    def labels() -> dict[str, str]:
        [one] = [one for one in engine.get_metrics() if one.name == "vllm:lora_requests_info"]
        return one.labels

    assert labels() == {
        "max_lora": "1",
        "running_lora_adapters": "adapter 0",
        "waiting_lora_adapters": "adapter 0,adapter 1",
        "running_lora_digests": digests[0],
        "waiting_lora_digests": ",".join(sorted(digests)),
    }
    run(engine)
    assert labels().pop("max_lora") == "1" and set(labels().values()) == {"1", ""}
    names = {one.name for one in small_engine().get_metrics()}
    assert not {one for one in names if "lora" in one}


def test_two_versions_of_one_name_are_two_digests() -> None:
    engine, adapters = small_engine(max_loras=2), [some_adapter(i) for i in range(2)]
    for i, adapter in enumerate(adapters):
        lora = LoRARequest("french", 1, adapter=adapter)
        engine.add_request(str(i), PROMPT, GREEDY, lora_request=lora)
    engine.step()
    [info] = [one for one in engine.get_metrics() if one.name == "vllm:lora_requests_info"]
    assert info.labels["running_lora_adapters"] == "french"
    assert info.labels["running_lora_digests"] == ",".join(sorted(one.digest for one in adapters))


def test_each_slot_that_holds_an_adapter_is_a_metric() -> None:
    """Its value is the number of requests that use it, which may be 0. Its label is the digest."""
    engine = small_engine(max_loras=3)
    digests = [some_adapter(i).digest for i in range(2)]

    def slots() -> dict[tuple[str, str], float]:
        return {
            (one.labels["slot"], one.labels["digest"]): one.value
            for one in engine.get_metrics()
            if isinstance(one, Gauge) and one.name == "jax_engine:lora_slot_requests"
        }

    assert slots() == {}
    for i, number in enumerate([0, 1, None, 0]):
        engine.add_request(str(i), PROMPT, GREEDY, lora_request=some_lora(number))
    engine.step()
    assert slots() == {("1", digests[0]): 2, ("2", digests[1]): 1}
    run(engine)
    assert slots() == {("1", digests[0]): 0, ("2", digests[1]): 0}
