"""A model in a process of its own gives what it gives in this one, to the bit."""

from pathlib import Path
from typing import Any

import pytest

from jax_engine import LLM, EngineConfig, SamplingParams
from jax_engine.engine.startup.build import settings_of_runners
from jax_engine.errors import ConfigError, ModelNotFoundError, WeightsError
from jax_engine.processes.runner_client import RemoteRunner
from tests.engine.test_real_adapters import DRAWN, GREEDY, bits, lora
from tests.engine.test_through_bytes import KINDS, SETTINGS, outputs
from tests.golden.families.checkpoints import cases
from tests.golden.families.parity import write
from tests.support.patience import until

pytestmark = pytest.mark.usefixtures("patient_runners")
BOTH = ("uni", "mp")
PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [3, 4], [9] * 6, [5, 6, 7, 8, 9, 1]]
SMALL: dict[str, Any] = {
    "skip_tokenizer_init": True, "max_model_len": 32, "max_num_seqs": 8, "max_logprobs": 3,
    "num_gpu_blocks_override": 40, "block_size": 4, "load_format": "auto",
}  # fmt: skip


def pair(model: str, **given: Any) -> list[LLM]:
    """Two of the same settings, the second with its model in a process of its own."""
    found = [LLM(model, distributed_executor_backend=where, **given) for where in BOTH]
    assert [isinstance(one.llm_engine.worker, RemoteRunner) for one in found] == [False, True]
    return found


def said(llm: LLM, params: SamplingParams, **given: Any) -> list[Any]:
    prompts = [{"prompt_token_ids": prompt} for prompt in PROMPTS]
    return [bits(one) for one in llm.generate(prompts, params, use_tqdm=False, **given)]


@pytest.mark.slow
def test_every_kind_of_request(of_bytes: str) -> None:
    here, there = pair(of_bytes, num_gpu_blocks_override=120, **SETTINGS)
    wanted = outputs(here)
    assert set(wanted) == {*KINDS, "embedding", "embedded tokens"}
    assert outputs(there) == wanted
    assert here.llm_engine.memory == there.llm_engine.memory
    assert here.llm_engine.worker.capabilities == there.llm_engine.worker.capabilities


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "ahead"), [("swap", True), ("swap", False), ("auto", True)])
def test_preemption(tiny: str, mode: str, ahead: bool) -> None:
    """There are so few blocks that samples push each other out, and back in again."""
    few = {**SMALL, "num_gpu_blocks_override": 9, "preemption_mode": mode, "swap_space": 0.01}
    here, there = pair(tiny, **few, async_scheduling=ahead)
    wanted = said(here, DRAWN)
    assert said(there, DRAWN) == wanted
    counts = [one.llm_engine.stats().num_swapped_out for one in (here, there)]
    if mode == "swap":
        assert counts[0] == counts[1] > 0
    else:
        assert all(one.llm_engine.stats().preemption_costs for one in (here, there))


@pytest.mark.slow
def test_a_draft_model(tiny: str) -> None:
    speculation = {"model": tiny, "num_speculative_tokens": 3}
    speculation |= {"enable_adaptive_verification": False}
    here, there = pair(tiny, **SMALL, speculative_config=speculation)
    assert said(there, GREEDY) == said(here, GREEDY)
    assert there.reset_prefix_cache()
    assert said(there, DRAWN) == said(here, DRAWN)


@pytest.mark.slow
def test_steps_are_compiled_there_ahead(tiny: str) -> None:
    one = {**SMALL, "max_num_seqs": 1, "max_num_batched_tokens": 16}
    here, there = pair(tiny, **one)
    count = there.llm_engine.warmup(use_tqdm=False)
    assert count == here.llm_engine.warmup(use_tqdm=False) > 0
    assert said(there, GREEDY) == said(here, GREEDY)


@pytest.mark.slow
def test_adapters(tmp_path: Path) -> None:
    """More of them than slots, so that they are sent again."""
    write(cases()["llama"], tmp_path)
    slots = {"enable_lora": True, "max_loras": 2, "max_lora_rank": 20}
    here, there = pair(str(tmp_path), **SMALL, **slots)
    for numbers in ([0, 1, 2, 1], [3, 2, 3, 0], [1, 1, 2, 3]):
        requests = [lora(tmp_path, number) for number in numbers]
        wanted = said(here, GREEDY, lora_request=requests)
        assert said(there, GREEDY, lora_request=requests) == wanted


@pytest.mark.slow
def test_what_cannot_be_built_is_refused_by_the_same_error(tiny: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.mkdir()
    for file in Path(tiny).iterdir():
        content = file.read_bytes()
        cut = file.suffix == ".safetensors"
        (bad / file.name).write_bytes(content[: len(content) // 2] if cut else content)
    cases: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (WeightsError, str(bad), {}),
        (ModelNotFoundError, str(tmp_path / "nowhere"), {}),
        (ConfigError, tiny, {"max_model_len": 10**6}),
        (MemoryError, tiny, {"num_gpu_blocks_override": 2}),
    ]
    for kind, model, changes in cases:
        texts = []
        for where in BOTH:
            with pytest.raises(kind) as caught:
                LLM(model, distributed_executor_backend=where, **{**SMALL, **changes})
            texts.append(str(caught.value))
        assert texts[0] == texts[1]


def test_settings_of_the_engine_alone_are_not_sent() -> None:
    config = EngineConfig(
        model="x", logits_processors=[lambda: None], speculative_config={"method": "ngram"},  # type: ignore[arg-type]
        distributed_executor_backend="mp", override_generation_config={"temperature": 0.5},
    )  # fmt: skip
    sent = settings_of_runners(config)
    assert sent == EngineConfig(model="x", distributed_executor_backend="uni")


@pytest.mark.parametrize("given", [dict, lambda fields: fields, {"rope_theta": lambda: 1}])
def test_a_function_is_refused_before_a_process_is_started(given: Any) -> None:
    config = EngineConfig(model="x", distributed_executor_backend="mp", hf_overrides=given)
    with pytest.raises(ConfigError, match="hf_overrides must be plain data"):
        settings_of_runners(config)


def test_other_backends_are_refused() -> None:
    with pytest.raises(ConfigError, match="distributed_executor_backend must be"):
        EngineConfig(distributed_executor_backend="external_launcher")  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_profile_of_the_engine_alone_is_refused(tiny: str) -> None:
    llm = LLM(tiny, distributed_executor_backend="mp", **SMALL)
    with pytest.raises(ConfigError, match="start_profile needs distributed_executor_backend='uni'"):
        llm.start_profile()


@pytest.mark.slow
def test_lines_of_the_process_begin_with_its_rank(
    tiny: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "jax_engine")
    llm = LLM(tiny, distributed_executor_backend="mp", **SMALL)
    assert said(llm, GREEDY)
    until(lambda: "rank 0: 40 KV blocks of 4 tokens" in caplog.text, "the line")
