"""Adapters from `LLM` down to a real worker: more of them than slots, and everything beside."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from jax_engine import LLM, LoRARequest, RequestOutput, SamplingParams
from jax_engine.errors import InvalidRequestError
from tests.golden.families.checkpoints import cases
from tests.golden.families.parity import write
from tests.support.adapted import adapter_of, modules_at
from tests.worker.test_adapters import merged_checkpoint

CASES = cases()
SETTINGS: dict[str, Any] = {
    "skip_tokenizer_init": True, "max_model_len": 48, "max_num_seqs": 8, "max_logprobs": 3,
    "num_gpu_blocks_override": 40, "block_size": 4,
}  # fmt: skip
SLOTS: dict[str, Any] = {"enable_lora": True, "max_loras": 2, "max_lora_rank": 20}
PROMPTS = [[5, 6, 7, 8, 9, 10, 11, 12, 13], [3, 4], [9] * 6]
GREEDY = SamplingParams(temperature=0.0, max_tokens=7, ignore_eos=True, logprobs=2)
DRAWN = SamplingParams(temperature=1.0, seed=3, n=3, max_tokens=6, ignore_eos=True, logprobs=1)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama")
    write(CASES["llama"], folder)
    return folder


@cache
def lora(path: Path, number: int) -> LoRARequest | None:
    """Adapter 0 is none."""
    if number == 0:
        return None
    of, names = modules_at(path)
    adapter = adapter_of(names[number % 3 :: 2], of, number)  # not the same modules
    return LoRARequest(f"adapter {number}", number, adapter=adapter)


def bits(output: RequestOutput) -> list[Any]:
    """Tokens and log-probabilities of all sequences."""
    return [
        (
            one.token_ids,
            [{token: p.logprob for token, p in at.items()} for at in one.logprobs or []],
        )
        for one in output.outputs
    ]


def asked(llm: LLM, path: Path, params: SamplingParams, numbers: list[int]) -> list[list[Any]]:
    """One call: the prompts in turn, each with an adapter."""
    prompts = [{"prompt_token_ids": PROMPTS[i % 3]} for i in range(len(numbers))]
    loras = [lora(path, number) for number in numbers]
    outputs = llm.generate(prompts, params, lora_request=loras, use_tqdm=False)
    return [bits(one) for one in outputs]


def alone(llm: LLM, path: Path, params: SamplingParams, number: int, place: int) -> list[Any]:
    prompt = {"prompt_token_ids": PROMPTS[place % 3]}
    (output,) = llm.generate(prompt, params, lora_request=lora(path, number), use_tqdm=False)
    return bits(output)


@pytest.mark.slow
@pytest.mark.parametrize("params", [GREEDY, DRAWN], ids=["greedy", "drawn"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_gpu_blocks_override": 14},  # preempts
        {"max_num_batched_tokens": 3, "max_num_seqs": 3},
        {"scheduling": "sosp", "max_num_batched_tokens": 64},
        {"async_scheduling": False, "enable_prefix_caching": False},
        {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}},
        {"speculative_config": {"method": "suffix", "num_speculative_tokens": 3}},
    ],
    ids=lambda one: next(iter(one), "defaults"),
)
def test_more_adapters_than_slots_change_nothing(
    llama: Path, settings: dict[str, Any], params: SamplingParams
) -> None:
    """Each request has the bits that it has alone, and those without one the base's."""
    numbers = [1, 2, 0, 3, 4, 1, 0, 5, 2]
    llm = LLM(str(llama), **SETTINGS | SLOTS | settings)
    together = asked(llm, llama, params, numbers)
    again = asked(llm, llama, params, numbers)  # prompts are cached, adapters were replaced
    plain = LLM(str(llama), **SETTINGS)
    calm = LLM(str(llama), **SETTINGS | SLOTS | {"max_loras": 5})
    for place, (number, found) in enumerate(zip(numbers, together, strict=True)):
        engine = calm if number else plain
        assert found == alone(engine, llama, params, number, place), place
    assert again == together
    assert len({str(one[0][1]) for one in together}) == 9  # no two have the same numbers


@pytest.mark.slow
def test_an_adapter_is_the_merged_model(llama: Path, tmp_path: Path) -> None:
    one = lora(llama, 3)
    assert one is not None and one.adapter is not None
    folder = tmp_path / "merged"
    merged = LLM(str(merged_checkpoint(CASES["llama"], one.adapter, folder)), **SETTINGS)
    llm = LLM(str(llama), **SETTINGS | SLOTS)
    for place in range(3):
        ((tokens, numbers),) = alone(llm, llama, GREEDY, 3, place)
        ((expected, others),) = alone(merged, llama, GREEDY, 0, place)
        assert tokens == expected
        for own, other in zip(numbers, others, strict=True):
            assert own == pytest.approx(other, abs=1e-3)


@pytest.mark.slow
def test_embeddings_are_the_adapter_s(llama: Path) -> None:
    llm = LLM(str(llama), **SETTINGS | SLOTS, runner="pooling")
    prompt = {"prompt_token_ids": PROMPTS[0]}
    loras = [None, lora(llama, 1), None, lora(llama, 2)]
    outputs = llm.embed([prompt] * 4, lora_request=loras, use_tqdm=False)
    base, first, same, second = (one.outputs.embedding for one in outputs)
    assert base == same and first != base and second not in (base, first)


@pytest.mark.slow
def test_what_cannot_be_computed_is_refused_alone(tmp_path: Path) -> None:
    """An adapter of a longer model: the others go on."""
    write(CASES["minicpm3"], tmp_path)
    of, names = modules_at(tmp_path)
    fitting = adapter_of(names[:2], of, 0)
    longer = tuple(replace(one, name=f"model.layers.7.{one.name}") for one in fitting.modules)
    bad = LoRARequest("bad", 1, adapter=replace(fitting, modules=longer))
    good = LoRARequest("good", 2, adapter=fitting)
    llm = LLM(str(tmp_path), **SETTINGS | SLOTS)
    prompt = {"prompt_token_ids": PROMPTS[0]}
    llm.enqueue(prompt, GREEDY, lora_request=good, use_tqdm=False)
    with pytest.raises(InvalidRequestError, match=r"bad.* no module model\.layers\.7\..* nearest"):
        llm.generate(prompt, GREEDY, lora_request=bad, use_tqdm=False)
    (output,) = llm.wait_for_completion(use_tqdm=False)
    assert len(output.outputs[0].token_ids) == 7
