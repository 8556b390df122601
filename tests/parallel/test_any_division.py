"""Any division of a model among processes, with any format and pool: the answers of one process.

What is drawn together here has tests of its own apart. Each example starts its processes anew.
"""

from typing import Any

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from jax_engine import LLM, SamplingParams
from tests.support.devices import for_cpu_kernels
from tests.support.quantised_llama import quantised_llama
from tests.support.tiny_llama import tiny_llama

pytestmark = [
    pytest.mark.usefixtures("patient_runners"),
    pytest.mark.slow,
    for_cpu_kernels("they meet by a kernel for a CPU"),
]
DIVISIONS = [
    (tensor, stages, engines)
    for tensor in (1, 2)
    for stages in (1, 2)
    for engines in (1, 2)
    if 1 < tensor * stages * engines < 8
]
FORMATS = ("float", "gptq", "w8a8")
EXAMPLES = max(1, settings().max_examples // 25)  # a start takes seconds
FIXED: dict[str, Any] = {
    "skip_tokenizer_init": True, "max_model_len": 40, "swap_space": 0.01, "max_logprobs": -1,
    "batch_invariant": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The path of a model of each format, of three layers."""
    folder = tmp_path_factory.mktemp("models")
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 64}
    found = {"float": tiny_llama(folder / "float", num_hidden_layers=3, **heads)[0]}
    for method in ("gptq", "w8a8"):
        found[method] = quantised_llama(folder / method, method, num_hidden_layers=3)[0]
    return {name: str(path) for name, path in found.items()}


SOSP = {"enable_prefix_caching": False, "max_num_batched_tokens": 40}  # whole prompts
pools = st.fixed_dictionaries(
    {
        "block_size": st.sampled_from([4, 8]),
        "num_gpu_blocks_override": st.integers(12, 40),
        "max_num_seqs": st.integers(2, 6),
        "max_num_batched_tokens": st.integers(6, 40),
        "preemption_mode": st.sampled_from(["swap", "recompute"]),
        "enable_prefix_caching": st.booleans(),
        "scheduling": st.sampled_from(["unified", "sosp"]),
        "async_scheduling": st.booleans(),
        "kv_cache_dtype": st.sampled_from(["auto", "fp8"]),
        "dtype": st.sampled_from(["float32", "bfloat16"]),
    }
).map(lambda pool: pool if pool["scheduling"] == "unified" else pool | SOSP)
params = st.builds(
    lambda n, **given: SamplingParams(n=max(n, 1), temperature=float(n > 0), **given),
    n=st.integers(0, 3),  # 0: greedy
    seed=st.integers(0, 9),
    max_tokens=st.integers(1, 12),
    logprobs=st.just(2),
    prompt_logprobs=st.sampled_from([None, 1]),
    ignore_eos=st.booleans(),
)
requests = st.lists(
    st.tuples(st.lists(st.integers(3, 30), min_size=1, max_size=24), params), min_size=1, max_size=8
)
POOL: dict[str, Any] = {
    "block_size": 4, "num_gpu_blocks_override": 13, "max_num_seqs": 4, "preemption_mode": "swap",
}  # fmt: skip
SAMPLED = SamplingParams(n=2, seed=5, max_tokens=12, logprobs=2, prompt_logprobs=1, ignore_eos=True)
MANY = [(list(range(3, 3 + size)), SAMPLED) for size in (5, 2, 6, 21, 9)]


@settings(max_examples=EXAMPLES)
@given(
    division=st.sampled_from(DIVISIONS),
    name=st.sampled_from(FORMATS),
    pool=pools,
    guesses=st.booleans(),
    requests=requests,
)
@example(division=(2, 2, 1), name="float", pool=POOL, guesses=True, requests=MANY)
@example(division=(1, 2, 2), name="w8a8", pool=POOL, guesses=False, requests=MANY)
def test_i52_it_answers_as_one_process(
    models: dict[str, str],
    division: tuple[int, int, int],
    name: str,
    pool: dict[str, Any],
    guesses: bool,
    requests: list[tuple[list[int], SamplingParams]],
) -> None:
    """To the bit, whatever the format."""
    tensor, stages, engines = division
    event(f"{division}, {name}")
    given: dict[str, Any] = {**FIXED, **pool}
    if guesses:
        given["speculative_config"] = {"method": "ngram", "num_speculative_tokens": 2}
    wanted = answers(LLM(models[name], **given), requests)
    there = LLM(
        models[name],
        **given,
        tensor_parallel_size=tensor,
        pipeline_parallel_size=stages,
        data_parallel_size=engines,
    )
    assert answers(there, requests) == wanted


def answers(llm: LLM, requests: list[tuple[list[int], SamplingParams]]) -> list[Any]:
    """The samples of each request with their log-probabilities, and its prompt's."""
    prompts = [{"prompt_token_ids": prompt} for prompt, _ in requests]
    found = llm.generate(prompts, [params for _, params in requests], use_tqdm=False)
    return [
        (
            [(one.token_ids, one.logprobs, one.finish_reason) for one in each.outputs],
            each.prompt_logprobs,
        )
        for each in found
    ]
