"""Adapters on a real worker: a request's bits are those that it has alone, whoever runs beside it.

Requests with and without adapters come and go: samples, greedy and guided ones, in a pool that is
too small, in small steps, beside guesses of n-grams and of a draft model, which has no adapters.
The engines serve one example after another, so that prompts are found in the prefix cache.
"""

import gc
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jax_engine import LLMEngine, LoRARequest, SamplingParams, StructuredOutputsParams
from jax_engine.config.engine_config import EngineConfig
from jax_engine.outputs import RequestOutput
from jax_engine.sampling_params import RequestOutputKind
from tests.engine.test_real_adapters import bits
from tests.support.adapted import adapter_of, modules_at
from tests.support.in_process import check_idle, run
from tests.support.sometimes import saw
from tests.support.tiny_llama import byte_llama

LAST = RequestOutputKind.FINAL_ONLY
BASE: dict[str, Any] = {
    "max_model_len": 48, "max_num_seqs": 8, "num_gpu_blocks_override": 120, "block_size": 4,
    "max_logprobs": 3,
}  # fmt: skip
SLOTS: dict[str, Any] = {"enable_lora": True, "max_loras": 2, "max_lora_rank": 20}
ENGINES: dict[str, dict[str, Any]] = {
    "plain": {},
    "few blocks": {"num_gpu_blocks_override": 16, "preemption_mode": "recompute"},
    "few blocks, swapped": {"num_gpu_blocks_override": 16, "preemption_mode": "swap"},
    "small steps": {"max_num_batched_tokens": 5, "max_num_seqs": 3},
    "one slot": {"max_loras": 1},
    "n-grams": {
        "speculative_config": {
            "method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1,
            "prompt_lookup_max": 2, "enable_adaptive_verification": False,
        },
    },
    "a draft model": {},  # its path is put in
}  # fmt: skip
# The first two begin with the same two blocks.
PROMPTS = [[97, 98] * 6, [97, 98] * 5 + [99], [5, 6, 7], [9] * 9]
KINDS: list[dict[str, Any]] = [
    {"temperature": 0.0, "max_tokens": 9},
    {"temperature": 0.0, "max_tokens": 20, "logprobs": None},
    {"seed": 3, "n": 3, "max_tokens": 6, "logprobs": 1},
    {"seed": 4, "max_tokens": 8, "presence_penalty": 1.0, "top_k": 5, "prompt_logprobs": 1},
    {"seed": 5, "max_tokens": 9, "guided": "(ab|c[0-9]){2,5}"},
    {
        "temperature": 0.0,
        "max_tokens": 4,
        "n": 2,
        "use_beam_search": True,
        "logprobs": None,
        "num_speculative_tokens": 0,  # beams are refused beside guesses
    },
]


class Asked(NamedTuple):
    """A request: which adapter (0: none), prompt and kind; when it comes, and is aborted."""

    adapter: int
    prompt: int
    kind: int
    at: int = 0
    abort_at: int | None = None


def params_of(kind: int) -> SamplingParams:
    given = {"logprobs": 2, "ignore_eos": True, "output_kind": LAST} | KINDS[kind]
    guide = given.pop("guided", None)
    if guide is not None:
        given |= {"structured_outputs": StructuredOutputsParams(regex=guide), "ignore_eos": False}
    return SamplingParams(**given)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and beside it a smaller one of the same vocabulary."""
    place = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("bytes", "draft")):
        byte_llama(place / name, seed)
    return place


@cache
def engine_of(folder: Path, name: str) -> LLMEngine:
    """One of ENGINES; "base" takes no adapters, and "calm" has a slot for each."""
    settings = BASE if name == "base" else BASE | SLOTS | ENGINES.get(name, {"max_loras": 6})
    if name == "a draft model":
        settings = settings | {
            "speculative_config": {"model": str(folder / "draft"), "num_speculative_tokens": 3}
        }
    config = EngineConfig.from_settings(model=str(folder / "bytes"), **settings)
    return LLMEngine.from_config(config)


@cache
def lora(folder: Path, number: int) -> LoRARequest | None:
    """The adapter `number`, with its own modules and ranks; 0 is none."""
    if number == 0:
        return None
    of, names = modules_at(folder / "bytes")
    return LoRARequest(f"a{number}", number, adapter=adapter_of(names[number % 3 :: 2], of, number))


@cache
def alone(folder: Path, adapter: int, prompt: int, kind: int) -> list[Any]:
    """What a request gets that nobody runs beside, without one by an engine without slots."""
    engine = engine_of(folder, "calm" if adapter else "base")
    add(engine, folder, "alone", Asked(adapter, prompt, kind))
    (output,) = run(engine)
    assert isinstance(output, RequestOutput)
    return bits(output)


def add(engine: LLMEngine, folder: Path, name: str, asked: Asked) -> None:
    prompt: Any = {"prompt_token_ids": PROMPTS[asked.prompt]}
    own = lora(folder, asked.adapter)
    engine.add_request(name, prompt, params_of(asked.kind), lora_request=own)


def served(engine: LLMEngine, folder: Path, workload: list[Asked]) -> dict[int, RequestOutput]:
    """The outputs of those that were not aborted."""
    found: dict[int, RequestOutput] = {}
    left, step = list(enumerate(workload)), 0
    while left or engine.has_unfinished_requests():
        for number, asked in left:
            if asked.at <= step:
                add(engine, folder, str(number), asked)
        left = [one for one in left if one[1].at > step]
        for number, asked in enumerate(workload):
            if asked.abort_at is not None and asked.at <= asked.abort_at == step:
                saw("aborted", engine.is_running(str(number)))
                engine.abort_request(str(number))
        for output in engine.step():
            assert isinstance(output, RequestOutput)
            if output.outputs[0].finish_reason != "abort":
                found[int(output.request_id)] = output
        step += 1
    return found


@st.composite
def workloads(draw: st.DrawFn) -> list[Asked]:
    asked = st.builds(
        Asked,
        st.integers(0, 5),
        st.integers(0, len(PROMPTS) - 1),
        st.integers(0, len(KINDS) - 1),
        st.integers(0, 6),
        st.sampled_from([None, None, None, 1, 3, 6]),
    )
    return draw(st.lists(asked, min_size=2, max_size=8))


@pytest.mark.slow
@given(workload=workloads(), name=st.sampled_from(list(ENGINES)))
@example([Asked(i % 6, i % 2, i % 3) for i in range(9)], "few blocks")
@example([Asked(i % 6, 0, 4) for i in range(7)], "one slot")
@example([Asked(i % 3, i % 2, 1) for i in range(7)], "a draft model")
@example([Asked(i % 3, i % 2, 1) for i in range(7)], "n-grams")
def test_bits_are_those_of_a_request_alone(folder: Path, workload: list[Asked], name: str) -> None:
    engine = engine_of(folder, name)
    found = served(engine, folder, workload)
    for number, asked in enumerate(workload):
        if asked.abort_at is None:
            wanted = alone(folder, asked.adapter, asked.prompt, asked.kind)
            assert bits(found[number]) == wanted, (number, asked)
            assert found[number].lora_request == lora(folder, asked.adapter)
    check_idle(engine)


@pytest.mark.parametrize("how", ["", ", swapped"])
@pytest.mark.slow
def test_crowds_are_preempted(how: str, folder: Path) -> None:
    """Else the property above says nothing of that."""
    engine = engine_of(folder, f"few blocks{how}")
    before = engine.stats()
    workload = [Asked(1 + i % 2, i % 4, 1) for i in range(8)]
    found, after = served(engine, folder, workload), engine.stats()
    count = "num_swapped_out" if how else "num_recomputed"
    assert getattr(after, count) > getattr(before, count)
    for number, asked in enumerate(workload):
        assert bits(found[number]) == alone(folder, asked.adapter, asked.prompt, asked.kind)


@pytest.mark.slow
def test_a_thousand_adapters_through_eight_slots(folder: Path) -> None:
    """Nothing of them is left, and who comes again has the bits that it had."""
    of, names = modules_at(folder / "bytes")
    settings = BASE | SLOTS | {"max_loras": 8, "max_lora_rank": 1}
    model = str(folder / "bytes")
    engine = LLMEngine.from_config(EngineConfig.from_settings(model=model, **settings))
    short = SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True, logprobs=1)
    prompt: Any = {"prompt_token_ids": PROMPTS[2]}
    sizes = []

    def serve(numbers: range) -> list[Any]:
        for number in numbers:
            adapter = adapter_of(names[:1], of, number, rank=1)
            own = LoRARequest(f"a{number}", number + 1, adapter=adapter)
            engine.add_request(str(number), prompt, short, lora_request=own)
        outputs = [one for one in run(engine) if isinstance(one, RequestOutput)]
        assert len(outputs) == len(numbers)
        check_idle(engine)
        return [bits(one) for one in sorted(outputs, key=lambda one: int(one.request_id))]

    first = serve(range(40))
    for start in range(40, 1000, 40):
        serve(range(start, start + 40))
        gc.collect()
        sizes.append(sum(one.nbytes for one in jax.live_arrays()))
    assert len(set(sizes)) == 1, sizes
    assert len(engine._adapters) == 8 == len(engine._adapters._alive)
    assert serve(range(40)) == first and len({str(one) for one in first}) == 40
